package load

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/chainscan"
	"github.com/fencepost/fencepost/emulator/verify/checkers/rows"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/faults"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Operator decides on STUCK transactions, and releases submitters from PROTECT once the
// fate of their nonces is final.
type Operator struct {
	client.Client
	Stack   *stack.Stack
	DB      *pgxpool.Pool // stands for the alerts: the API lists no STUCK transactions
	Foreign *faults.Foreign
	Source  *rand.Rand

	Ledger *Ledger
	Note   func(format string, args ...any) // writes a line to the log of the run

	decidedLast sync.Map // times by txId
	draining    atomic.Bool

	Payer txmanager.Submitter // the submitter of payouts; "": none
	// IsNeverRepeated reports of a payment of the payer whether no user will repeat it: a
	// lost database had already answered its user with a final state.
	IsNeverRepeated func(ctx context.Context, payment common.Hash) bool

	restored   sync.Mutex                   // held while a restored copy is reconciled: no release before that
	restoredAt map[txmanager.Submitter]bool // not released since the last restore
}

// The operator's acts, as they are counted and printed.
const (
	Decides       = "STUCK decided: "
	Resumes       = "PROTECT left by resume"
	Resyncs       = "PROTECT left by resync"
	Mistakes      = "a resync to a wrong count, refused"
	pollInterval  = 500 * time.Millisecond
	decisionPause = 3 * time.Second // between two decisions on one transaction
)

// actions are the decisions that an operator can take.
var actions = []string{"wait", "rebroadcast", "replace", "placeholder"}

// Acts returns the operator's acts that are counted, after a restore or without one.
func Acts(restored bool) []string {
	all := []string{Mistakes}
	for _, action := range actions {
		all = append(all, Decides+action)
	}
	if restored {
		all = append(all, Matched, WrittenOff)
	}
	return all
}

// Drain makes the operator decide for an end: it waits no more and makes no mistakes.
func (o *Operator) Drain() { o.draining.Store(true) }

// Run decides and releases until ctx ends. A call that fails is tried again.
func (o *Operator) Run(ctx context.Context) {
	for ctx.Err() == nil {
		o.act(ctx)
		retry.Pause(ctx, pollInterval)
	}
}

func (o *Operator) act(ctx context.Context) {
	o.restored.Lock()
	defer o.restored.Unlock()
	acts := []func(context.Context){o.decideAll, o.releaseAll}
	if o.Ledger.Generation() > 0 {
		acts = append(acts, o.decideHeld, o.decideForeign)
		if o.Payer != "" {
			acts = append(acts, o.decidePayments)
		}
	}
	for _, act := range acts {
		_ = steps.Run(func() { act(ctx) }) // one that cannot read the database or the chain is tried again later
	}
}

func (o *Operator) decideAll(ctx context.Context) {
	var due [][2]string // ids and actions
	for _, id := range rows.All(ctx, o.DB, pgx.RowTo[string], `select tx_id::text from managed_tx where state = 'STUCK' order by seq`) {
		if at, decided := o.decidedLast.Load(id); decided && time.Since(at.(time.Time)) < decisionPause {
			continue
		}
		action := actions[o.Source.IntN(len(actions))]
		if o.draining.Load() && action == "wait" {
			action = "rebroadcast"
		}
		due = append(due, [2]string{id, action})
	}
	client.Each(due, func(d [2]string) { o.decide(ctx, d[0], d[1]) }) // with a wide window many are STUCK at once
}

func (o *Operator) decide(ctx context.Context, id, action string) {
	a := o.Ask(ctx, http.MethodPost, "/admin/v1/tx/"+id+"/decide", map[string]any{"action": action, "reason": "seen by the operator on call"})
	if a.Status == http.StatusAccepted {
		o.Ledger.Count(Decides + action)
		o.decidedLast.Store(id, time.Now())
	}
}

// protected is a submitter in PROTECT as the admin function shows it.
type protected struct {
	Submitter     txmanager.Submitter
	NextNonce     uint64
	InFlightNonce *uint64
	MaxInFlight   int
	Protect       *struct{ Incident int }
}

func (o *Operator) releaseAll(ctx context.Context) {
	var list struct{ Submitters []protected }
	_, _ = o.Read(ctx, "/admin/v1/submitters", &list) // without an answer it is empty
	for _, p := range list.Submitters {
		if p.Protect != nil {
			o.releaseOne(ctx, p)
		}
	}
}

// releaseOne releases a submitter if the chain allows it. A release that fails is tried again.
func (o *Operator) releaseOne(ctx context.Context, p protected) {
	if mistake := o.Source.IntN(4); mistake == 0 && !o.draining.Load() && !o.restoredAt[p.Submitter] {
		o.requestWrongCount(ctx, p)
	}
	var body map[string]any
	if err := steps.Run(func() { body = o.releaseRequest(ctx, p) }); err != nil {
		if o.Ledger.Generation() > 0 {
			o.Note("operator: no way out of PROTECT for %s so far: %v", p.Submitter, err)
		}
		return
	}
	if o.release(ctx, p, body).Status == http.StatusOK {
		delete(o.restoredAt, p.Submitter)
	}
}

func (o *Operator) release(ctx context.Context, p protected, body map[string]any) client.Answer {
	body["incident"] = p.Protect.Incident
	a := o.Ask(ctx, http.MethodPost, "/admin/v1/submitters/"+string(p.Submitter)+"/release", body)
	o.Note("release of %s by %v: %s", p.Submitter, body, a)
	return a
}

// requestWrongCount asks for a resync to a count that the chain never had. It must be refused.
func (o *Operator) requestWrongCount(ctx context.Context, p protected) {
	body := map[string]any{"mode": txmanager.Resync, "count": p.NextNonce + 1_000_000, "reason": "a slip of the finger"}
	a := o.release(ctx, p, body)
	switch {
	case a.IsUnclear() || a.Status == http.StatusConflict:
	case a.Status != http.StatusBadRequest:
		o.Ledger.Contradict(string(p.Submitter), "", fmt.Sprintf("a resync to a count that the chain never had: got %s, want 400", a))
	default:
		o.Ledger.Count(Mistakes)
	}
}

// releaseRequest returns the release of a submitter from PROTECT. It waits until the chain's
// finalized block has every transaction that the account sent. From then on each nonce is
// either consumed for good or free. Before Drain it sometimes resumes although nonces are
// lost: the next chain queries must detect that.
func (o *Operator) releaseRequest(ctx context.Context, p protected) (body map[string]any) {
	final := o.finalCount(ctx, p.Submitter)
	lowest := *cmp.Or(p.InFlightNonce, &p.NextNonce)
	switch restored := o.Ledger.Generation() > 0; {
	case restored && p.Submitter == o.Payer:
		return o.payerReleaseRequest(ctx, final)
	case restored:
		return o.releaseRequestAfterRestore(ctx, p, lowest, final)
	}
	lost := make(map[uint64]string) // "none" for each nonce that a foreign signer consumed
	for _, tx := range o.sent(ctx, p.Submitter, lowest, final) {
		if o.signedByForeignSigner(p.Submitter, tx.Hash().Hex()) {
			lost[tx.Nonce()] = txmanager.NoRequest
		}
	}
	switch {
	case final <= p.NextNonce && len(lost) == 0:
		return map[string]any{"mode": txmanager.Resume, "reason": "nothing of ours is lost"}
	case o.Source.IntN(5) == 0 && !o.draining.Load():
		return map[string]any{"mode": txmanager.Resume, "reason": "an alarm that was not examined"}
	}
	reason := fmt.Sprintf("a foreign signer used the key; the account's final count is %d", final)
	return map[string]any{"mode": txmanager.Resync, "count": final, "requests": lost, "reason": reason}
}

// sent returns the account's mined transactions with nonces from lowest on and below count.
func (o *Operator) sent(ctx context.Context, s txmanager.Submitter, lowest, count uint64) []chainscan.Tx {
	isLower := func(tx chainscan.Tx) bool { return tx.From == s.Address() && tx.Nonce() < lowest }
	chain := steps.Value(chainscan.Read(ctx, o.Stack.Chain.URL(), isLower))
	return slices.DeleteFunc(chain.From(s.Address()), func(tx chainscan.Tx) bool { return tx.Nonce() < lowest || tx.Nonce() >= count })
}

// finalCount returns the account's count at the finalized block. It ends the steps if the chain has
// further transactions of the account.
func (o *Operator) finalCount(ctx context.Context, s txmanager.Submitter) uint64 {
	node := steps.Value(ethclient.DialContext(ctx, o.Stack.Chain.URL()))
	defer node.Close()
	account := common.Address(eip155.MustBytes(s.Address()))
	final := steps.Value(node.NonceAt(ctx, account, big.NewInt(rpc.FinalizedBlockNumber.Int64())))
	if pending := steps.Value(node.PendingNonceAt(ctx, account)); pending != final {
		steps.Stopf("the account's count is %d at the finalized block, and %d with what is pending", final, pending)
	}
	return final
}
