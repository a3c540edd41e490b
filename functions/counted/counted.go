// Package counted wraps stores and signers with metrics: creates, leases, signatures, and states of transfers.
package counted

import (
	"context"
	"errors"
	"math/big"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
)

// Store is the store with metrics about creates and leases.
type Store struct{ *store.Store }

// Create implements [payout.Manager].
func (s Store) Create(ctx context.Context, in store.Intent, queueBound int) (store.StoredIntent, error) {
	accepted, err := s.Store.Create(ctx, in, queueBound)
	countCreate(ctx, in, accepted, err)
	return accepted, err
}

// CreateAll is [store.Store.CreateAll]. Each intent begins its own trace.
func (s Store) CreateAll(ctx context.Context, all []store.Intent, queueBound int) ([]store.Created, error) {
	for i := range all {
		all[i].Trace = telemetry.NewOrigin(ctx, attribute.String(telemetry.TxIDKey, all[i].TxID))
	}
	created, err := s.Store.CreateAll(ctx, all, queueBound)
	for i, in := range all {
		if err != nil {
			countCreate(ctx, in, store.StoredIntent{}, err)
			continue
		}
		countCreate(ctx, in, created[i].StoredIntent, created[i].Err)
	}
	return created, err
}

func countCreate(ctx context.Context, in store.Intent, accepted store.StoredIntent, err error) {
	result := "known"
	switch {
	case err != nil && refuses(in, err):
		result = "refused"
	case err != nil:
		result = "error"
	case accepted.New:
		result = "accepted"
	}
	telemetry.TxCreate.Add(ctx, 1, telemetry.Result(result))
}

// refusals are the errors of a create that has certainly stored nothing.
var refusals = []error{
	store.ErrUnknownSubmitter, store.ErrAnyCaller, store.ErrRequestConflict, store.ErrRecorded, store.ErrProtected, store.ErrSuspended,
	store.ErrRetired, store.ErrQueueFull, store.ErrMoved, store.ErrHandlerBarred, store.ErrPast, store.ErrNoMAC,
}

// refuses reports whether a create of the intent that returned err has certainly stored nothing.
func refuses(in store.Intent, err error) bool {
	return errors.As(err, new(store.PolicyError)) || in.Refused != nil && errors.Is(err, in.Refused) ||
		slices.ContainsFunc(refusals, func(one error) bool { return errors.Is(err, one) })
}

// Acquire implements [txmanager.Store].
func (s Store) Acquire(ctx context.Context, sub txmanager.Submitter, owner string, wide bool) (txmanager.AcquireResult, error) {
	taken, err := s.Store.Acquire(ctx, sub, owner, wide)
	switch {
	case err != nil:
	case !taken.Held:
		telemetry.LeaseAcquire.Add(ctx, 1, telemetry.Result("not_owner"))
	case taken.Token == 1:
		telemetry.LeaseAcquire.Add(ctx, 1, telemetry.Result("inserted"))
	case taken.TakenOver:
		telemetry.LeaseAcquire.Add(ctx, 1, telemetry.Result("taken_over"))
	default:
		telemetry.LeaseAcquire.Add(ctx, 1, telemetry.Result("reacquired"))
	}
	return taken, err
}

// BeginIteration implements [txmanager.Store].
func (s Store) BeginIteration(ctx context.Context, l lease.Lease, wide bool) (txmanager.SubmitterState, error) {
	work, err := s.Store.BeginIteration(ctx, l, wide)
	countRenewal(ctx, "again", err)
	return work, err
}

// Renew implements [txmanager.Store].
func (s Store) Renew(ctx context.Context, l lease.Lease) (lease.Lease, error) {
	renewed, err := s.Store.Renew(ctx, l)
	countRenewal(ctx, "renew", err)
	return renewed, err
}

func countRenewal(ctx context.Context, op string, err error) {
	if err == nil {
		telemetry.LeaseAcquire.Add(ctx, 1, telemetry.Result("renewed"))
	}
	countFenced(ctx, op, err)
}

func countFenced(ctx context.Context, op string, err error) {
	if errors.Is(err, lease.ErrFenced) {
		telemetry.LeaseFenced.Add(ctx, 1, telemetry.Op(op))
	}
}

// Commit implements [txmanager.Store].
func (s Store) Commit(ctx context.Context, w txmanager.Commit) (txmanager.CommitResult, error) {
	done, err := s.Store.Commit(ctx, w)
	countFenced(ctx, opOf(w), err)
	return done, err
}

// opOf names a commit by its most important change.
func opOf(w txmanager.Commit) string {
	switch {
	case len(w.Allocations) > 0:
		return "allocate"
	case len(w.Versions) > 0:
		return "store"
	case len(w.Transitions) > 0:
		return "move"
	case !w.Cursor.Empty():
		return "cursor"
	}
	return "release"
}

// Chain is a chain that counts the receipts queried from it.
type Chain struct{ serve.Connector }

// Query implements [txmanager.ChainConnector].
func (c Chain) Query(ctx context.Context, q txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	v, err := c.Connector.Query(ctx, q)
	if len(q.Receipts) == 0 {
		return v, err
	}
	var answers [txmanager.AnswerFound + 1]int64
	for _, h := range q.Receipts {
		answers[v.Receipts[h].Answer]++ // after an error each answer is unknown
	}
	for answer, result := range map[txmanager.Answer]string{txmanager.AnswerFound: "found", txmanager.AnswerNotFound: "not_found", txmanager.AnswerUnknown: "error"} {
		if n := answers[answer]; n > 0 {
			telemetry.ReceiptCheck.Add(ctx, n, telemetry.Result(result))
		}
	}
	return v, err
}

// Signer is a signer of one kind that counts its calls.
type Signer struct {
	txmanager.Signer
	kind string
}

// NewSigner returns the signer that a registration names, with its calls counted by kind.
func NewSigner(d signer.Directory, name string) Signer {
	kind, _, _ := strings.Cut(name, ":")
	return Signer{d.For(name), kind}
}

// Sign implements [txmanager.Signer].
func (s Signer) Sign(ctx context.Context, sub txmanager.Submitter, tx txmanager.Unsigned) (txmanager.Signed, error) {
	began := time.Now()
	signed, err := s.Signer.Sign(ctx, sub, tx)
	kind, result := telemetry.Signer(s.kind), telemetry.Result("signed")
	if err != nil {
		result = telemetry.Result("unknown")
	}
	telemetry.TxSign.Add(ctx, 1, kind, result)
	telemetry.TxSignTime.Add(ctx, time.Since(began).Seconds(), kind, result)
	return signed, err
}

// Watcher counts and traces the commits of lease sessions. Each step belongs to the trace of its
// intent.
type Watcher struct{}

// Committed implements [txmanager.Watcher].
func (Watcher) Committed(ctx context.Context, began time.Time, steps []txmanager.Step) {
	for _, s := range steps {
		if s.NewFork {
			telemetry.NewFork.Add(ctx, 1)
		}
		if s.Decided != nil {
			Decision(ctx, s.Decided.Action)
		}
		countOptionalFeatures(ctx, s)
		countProgress(ctx, s)
		if s.From.State != s.To.State || s.From.Sub != s.To.Sub {
			telemetry.Step(ctx, s.To.Trace, string(s.To.State), began, stepAttributes(s.To)...)
		}
	}
}

// countProgress counts the end of a transaction, and records how long it took to its nonce or its end.
func countProgress(ctx context.Context, s txmanager.Step) {
	if s.To.State.Terminal() && !s.From.State.Terminal() {
		result := telemetry.Result(endOf(s.To))
		telemetry.Finality.Add(ctx, 1, result)
		if s.Age > 0 {
			telemetry.TxFinalTime.Record(ctx, s.Age.Seconds(), result)
		}
	}
	if s.From.State == txmanager.Queued && s.To.Nonce != nil && s.Age > 0 {
		telemetry.TxQueueWait.Record(ctx, s.Age.Seconds(), telemetry.Chain(s.To.Submitter.ChainID()))
	}
}

// countOptionalFeatures counts what the optional features have done.
func countOptionalFeatures(ctx context.Context, s txmanager.Step) {
	if s.ExtraWei != nil {
		telemetry.GasBump.Add(ctx, 1)
		if gwei := new(big.Int).Quo(s.ExtraWei, big.NewInt(gas.WeiPerGwei)); gwei.IsInt64() {
			telemetry.GasBumpExtra.Add(ctx, gwei.Int64())
		}
	}
	if d := s.To.Diagnosis; d != nil && d != s.From.Diagnosis {
		telemetry.MempoolDiagnosis.Add(ctx, 1, telemetry.Signal(strings.ToLower(string(d.Signal))))
	}
}

// endOf returns the end of a final transaction, as a label.
func endOf(x txmanager.Tx) string {
	if x.State == txmanager.Confirmed {
		return "confirmed"
	}
	return strings.ToLower(string(x.Sub))
}

func stepAttributes(x txmanager.Tx) []attribute.KeyValue {
	if len(x.Trace) == 0 {
		return nil
	}
	attrs := []attribute.KeyValue{attribute.String(telemetry.TxIDKey, x.ID), attribute.String("subState", string(x.Sub))}
	if len(x.Versions) > 0 {
		attrs = append(attrs, attribute.String("txHash", x.Hash().String()))
	}
	return attrs
}

// Broadcast implements [txmanager.Watcher].
func (Watcher) Broadcast(ctx context.Context, began time.Time, b txmanager.Broadcast) {
	result := telemetry.Result(b.Result.Class.String())
	telemetry.TxSubmit.Add(ctx, 1, result)
	if b.Again {
		telemetry.TxResubmit.Add(ctx, 1, result)
	} else if b.Result.Acknowledged() && b.Age > 0 {
		telemetry.TxBroadcastTime.Record(ctx, b.Age.Seconds(), telemetry.Chain(b.Tx.Submitter.ChainID()))
	}
	telemetry.Step(ctx, b.Tx.Trace, "send", began,
		append(stepAttributes(b.Tx), attribute.String("result", b.Result.Class.String()), attribute.Bool("again", b.Again))...)
}

// IntentUnproved implements [txmanager.Watcher].
func (Watcher) IntentUnproved(ctx context.Context, p txmanager.Proof) {
	telemetry.TxUnproved.Add(ctx, 1, telemetry.Result(string(p)))
}

// TaskContext implements [txmanager.Watcher]. The tasks continue the invocation's trace if that is the
// trace of a transaction which they concern. Otherwise they continue the trace of the first such
// transaction that has one.
func (Watcher) TaskContext(ctx context.Context, unsettled, queue []txmanager.Tx) context.Context {
	about := unsettled
	if len(about) == 0 {
		about = queue[:min(len(queue), 1)]
	}
	var first []byte
	for _, x := range about {
		if telemetry.InTraceOf(ctx, x.Trace) {
			return ctx
		}
		if first == nil {
			first = x.Trace
		}
	}
	return telemetry.Onward(ctx, first)
}

// Decision counts a decision about a transaction, by the API's name of the action.
func Decision(ctx context.Context, action txmanager.Action) {
	telemetry.StuckDecision.Add(ctx, 1, telemetry.Action(strings.ToLower(string(action))))
}
