package txmanager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/shared/lease"
)

// NoRequest states in [ReleaseRequest.Requests] that no request of this database consumed the
// nonce.
const NoRequest = "none"

// Naming is one pair of a nonce and a request in a release, and its effect.
type Naming struct {
	Nonce     uint64       `json:"nonce"`
	RequestID string       `json:"requestId"`
	TxID      string       `json:"txId,omitempty"`   // "": the request was not stored
	TxHash    *Hash        `json:"txHash,omitempty"` // the foreign transaction; nil: no node gives it
	Effect    NamingEffect `json:"effect"`
	Stated    bool         `json:"stated"` // an operator stated that it was carried out: no node can prove it
}

// NamingEffect is the effect of naming a request.
type NamingEffect string

// The effects. After each, the request's call is never signed again.
const (
	NamedRecorded    NamingEffect = "RECORDED"    // the request ended CONFIRMED/RECORDED, by its transaction or by an operator's statement
	NamedReverted    NamingEffect = "REVERTED"    // the request ended FAILED/REVERTED, as its transaction did
	NamedPlaceholder NamingEffect = "PLACEHOLDER" // the request holds another nonce; it ends when a placeholder has consumed that
)

// OpenRequest is a request that a foreign transaction may have carried out: a queued intent, or an
// open payout without a stored intent.
type OpenRequest struct {
	RequestID string
	TxID      string // "": an open payout
	Payload   []byte
	Unknown   bool // its call is unknown until its handler runs
}

// NamedRequest is the stored state of a request that a release names.
type NamedRequest struct {
	TxID  string
	State State
	Sub   SubState
}

// UnnamedNonceError reports nonces for which the operator must name the request. The transaction
// that consumed each makes the call of a request, or is unknown.
type UnnamedNonceError struct {
	Nonce uint64
	Why   string
	More  []string // the other nonces, each with its reason
}

// Error gives each nonce and its reason.
func (e UnnamedNonceError) Error() string {
	return strings.Join(append([]string{fmt.Sprintf("nonce %d: %s", e.Nonce, e.Why)}, e.More...), "; ")
}

// NamingError reports a name in a release that would have no effect, or a wrong one.
type NamingError struct {
	Nonce     uint64
	RequestID string
	Why       string
}

// Error gives the nonce, the request and the reason.
func (e NamingError) Error() string {
	return fmt.Sprintf("nonce %d, request %q: %s", e.Nonce, e.RequestID, e.Why)
}

// ErrStillReading reports lost nonces whose transactions are still being read.
var ErrStillReading = errors.New("the transactions that consumed the nonces are still being read")

// evidence is the known data about the transactions that consumed the lost nonces.
type evidence struct {
	lost    []uint64
	payer   bool // the submitter makes payouts: a proof of payment is required beside the name
	foreign map[uint64]ForeignTransaction
}

// nameLostNonces checks what the operator stated about the lost nonces against the stored
// evidence, and plans each name's effect. The argument moves has the transitions of the resync
// without names. The observation v shows which open transactions have a receipt.
func (t *incident) nameLostNonces(ctx context.Context, l *ReleaseRequest, v ChainObservation, moves []Transition, e evidence) ([]Transition, []Naming, error) {
	for n, name := range l.Requests {
		if !slices.Contains(e.lost, n) {
			return nil, nil, NamingError{n, name, t.notLostReason(n, l.Count)}
		}
	}
	if err := t.readByHash(ctx, l, e.lost); err != nil {
		return nil, nil, err
	}
	e, err := t.readEvidence(ctx, e, l.Count)
	if err != nil {
		return nil, nil, err
	}
	open, err := t.Store.OpenRequests(ctx, t.state.submitterOf())
	if err != nil {
		return nil, nil, err
	}
	pairs, err := t.pairRequests(l, e, open)
	if err != nil {
		return nil, nil, err
	}
	if err := e.checkProved(l, pairs); err != nil {
		return nil, nil, err
	}
	said := l.Requests
	l.Requests = maps.Clone(pairs)
	for n, name := range said { // the record also keeps the nonces stated as no request
		if name == NoRequest {
			l.Requests[n] = name
		}
	}
	known, err := t.Store.NamedRequests(ctx, t.state.submitterOf(), slices.Sorted(maps.Values(pairs)))
	if err != nil {
		return nil, nil, err
	}
	var done []Naming
	for _, n := range slices.Sorted(maps.Keys(pairs)) {
		if _, ok := known[pairs[n]]; !ok {
			if err := t.checkSpelling(n, pairs[n], open); err != nil {
				return nil, nil, err
			}
		}
		one, err := t.nameRequest(l, v, e, moves, n, known)
		if err != nil {
			return nil, nil, err
		}
		if i := slices.IndexFunc(moves, func(m Transition) bool { return m.To.ID == one.TxID }); one.TxID != "" && i >= 0 {
			moves[i] = t.endNamedRequest(moves[i], l, e, n)
		} else if i := slices.IndexFunc(t.state.Open, func(x Tx) bool { return x.ID == one.TxID }); one.TxID != "" && i >= 0 {
			x := t.state.Open[i]
			moves = append(moves, t.endNamedRequest(Transition{From: x.State, To: x}, l, e, n))
		} else {
			l.EndedRequests = append(l.EndedRequests, one)
		}
		done = append(done, one)
	}
	l.ConsumedBy = e.consumingTxs(t.state.NextNonce)
	return moves, done, nil
}

// checkSpelling reports a name that is not stored and differs from an open request only in case or
// in surrounding spaces. The intended request would be carried out again.
func (t *incident) checkSpelling(n uint64, name string, open []OpenRequest) error {
	same := func(id string) bool { return strings.EqualFold(strings.TrimSpace(name), strings.TrimSpace(id)) }
	for _, o := range open {
		if o.RequestID != name && same(o.RequestID) {
			return NamingError{n, name, fmt.Sprintf("no request has this requestId; one that is open has %q", o.RequestID)}
		}
	}
	for _, x := range t.state.Open {
		if same(x.RequestID) {
			return NamingError{n, name, fmt.Sprintf("no request has this requestId; one in flight has %q", x.RequestID)}
		}
	}
	return nil
}

// notLostReason is why a named nonce is not lost.
func (t *incident) notLostReason(n, count uint64) string {
	switch {
	case n >= count:
		return fmt.Sprintf("the chain has not consumed it: its count at the finalized block is %d", count)
	case n < t.state.NextNonce:
		return "a transaction on record here has it"
	}
	return "it is not lost"
}

// nameRequest determines the effect of naming a request for nonce n, or the error why it has none.
func (t *incident) nameRequest(l *ReleaseRequest, v ChainObservation, e evidence, moves []Transition, n uint64, known map[string]NamedRequest) (Naming, error) {
	id := l.Requests[n]
	one := Naming{Nonce: n, RequestID: id, Effect: NamedRecorded, Stated: l.Executed[n] != ""}
	if f, read := e.foreign[n]; read {
		one.TxHash = &f.Tx.Hash
		if !f.Succeeded {
			one.Effect = NamedReverted
		}
	}
	on, ok := known[id]
	one.TxID = on.TxID
	if !ok || on.State == Queued {
		return one, nil
	}
	if on.State.Terminal() {
		return one, NamingError{n, id, fmt.Sprintf("it has ended here: %s %s; say %q where no other request was it", on.State, on.Sub, NoRequest)}
	}
	i := slices.IndexFunc(t.state.Open, func(x Tx) bool { return x.ID == on.TxID })
	switch {
	case i < 0:
		return one, NamingError{n, id, "its state changed meanwhile: ask again"}
	case t.state.Open[i].FillsLostNonce:
		return one, NamingError{n, id, fmt.Sprintf("it is a placeholder of a release, and no request: say %q", NoRequest)}
	case slices.Contains(e.lost, *t.state.Open[i].Nonce):
		return one, nil
	case t.state.Open[i].Recorded != nil:
		return one, NamingError{n, id, fmt.Sprintf("an earlier release named it for nonce %d", t.state.Open[i].Recorded.Nonce)}
	case !hasNoReceipt(t.state.Open[i], v) || t.state.Open[i].Receipt != nil:
		return one, NamingError{n, id, fmt.Sprintf("its own bytes are on the chain at nonce %d; say %q where no other request was it", *t.state.Open[i].Nonce, NoRequest)}
	}
	one.Effect = NamedPlaceholder
	return one, nil
}

// endNamedRequest is m for a request named for nonce n. The request ends if its own nonce is lost;
// otherwise a placeholder must consume that nonce first.
func (t *incident) endNamedRequest(m Transition, l *ReleaseRequest, e evidence, n uint64) Transition {
	r := e.recorded(n)
	if slices.Contains(e.lost, *m.To.Nonce) {
		m.To = endRecorded(m.To, r)
		return m
	}
	m.To.Recorded, m.To.RequestedAction, m.To.NextCheckAt = &r, ActionPlaceholder, &t.state.Now
	m.To.LastError = withDetail("a release recorded that a foreign transaction was this request: a placeholder is to consume its own place",
		fmt.Sprintf("the foreign transaction consumed nonce %d", n))
	m.Decision = &Decision{Action: ActionPlaceholder, By: l.By, Reason: l.Reason}
	return m
}

// recorded is the record for a request that was named for nonce n.
func (e evidence) recorded(n uint64) Recorded {
	r := Recorded{Nonce: n}
	if f, read := e.foreign[n]; read {
		r.Receipt = &Receipt{TxHash: f.Tx.Hash, BlockNumber: f.Tx.BlockNumber, BlockHash: f.Tx.BlockHash,
			Succeeded: f.Succeeded, Document: f.Receipt}
	}
	return r
}

// consumingTxs are the transactions that consumed the lost nonces below next, which intents held.
func (e evidence) consumingTxs(next uint64) map[uint64]ConsumingTx {
	all := make(map[uint64]ConsumingTx)
	for n, f := range e.foreign {
		if n < next && slices.Contains(e.lost, n) {
			all[n] = f.Tx
		}
	}
	return all
}

// readEvidence reads the stored transactions that consumed the lost nonces. Before that it reads
// and stores missing ones, as far as one invocation may. The error wraps [ErrStillReading] where
// more must be read, or a node gave no answer. A transaction that no node can give stays unknown.
func (t *incident) readEvidence(ctx context.Context, e evidence, count uint64) (evidence, error) {
	e.foreign = make(map[uint64]ForeignTransaction)
	var failed error // why the last step read nothing
	for more := true; more; {
		before := len(t.unknownConsumers)
		step, err := t.readSomeForeign(ctx)
		failed = err
		if errors.Is(err, lease.ErrFenced) || errors.Is(err, ErrNoQuorum) {
			return e, err
		}
		if err := t.storeForeign(ctx, step); err != nil {
			return e, err
		}
		more = (!step.isEmpty() || len(t.unknownConsumers) > before) && !t.isHalfTimeOver()
	}
	stored, err := t.Store.ForeignTransactions(ctx, t.state.submitterOf(), t.state.lowestOpenNonce(), count)
	if err != nil {
		return e, err
	}
	for _, f := range stored {
		e.foreign[f.Nonce] = f
	}
	missing := 0
	for _, n := range e.lost {
		if _, read := e.foreign[n]; !read && !t.unknownConsumers[n] {
			missing++
		}
	}
	switch {
	case missing > 0 && failed != nil:
		return e, fmt.Errorf("%w: %d of %d, and a node did not answer (%v)", ErrStillReading, missing, len(e.lost), failed)
	case missing > 0:
		why := ""
		if t.scan.Begun {
			why = "; the node keeps no counts so old, and " + t.scan.Progress()
		}
		return e, fmt.Errorf("%w: %d of %d%s", ErrStillReading, missing, len(e.lost), why)
	}
	return e, t.checkStillOnChain(ctx, e)
}

// checkStillOnChain asks the chain's nodes about the block of the highest transaction that was
// read. A reorg below finality would have removed it with the others.
func (t *incident) checkStillOnChain(ctx context.Context, e evidence) error {
	var last *ForeignTransaction
	for _, n := range e.lost {
		if f, read := e.foreign[n]; read && (last == nil || f.Nonce > last.Nonce) {
			last = &f
		}
	}
	if last == nil {
		return nil
	}
	q := ChainQuery{Submitter: t.state.submitterOf(), HashesAt: []uint64{last.Tx.BlockNumber}}
	v, err := t.query(ctx, q)
	if err != nil {
		return fmt.Errorf("query block %d: %w", last.Tx.BlockNumber, err)
	}
	block := Header{Number: last.Tx.BlockNumber, Hash: last.Tx.BlockHash}
	if v.HashesAt[block.Number] != block.Hash {
		return fmt.Errorf("%w that block %d, in which nonce %d was consumed, is the chain's", ErrNoQuorum, block.Number, last.Nonce)
	}
	return t.requireQuorum(ctx, q, v, fmt.Sprintf("block %d, in which nonce %d was consumed, is the chain's", block.Number, last.Nonce), agreesOnBlock(block))
}
