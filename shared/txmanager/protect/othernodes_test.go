package protect

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/session/sessiontest"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

var rulesOf = sessiontest.Rules

// incidentOf is a PROTECT incident of a submitter in this state, in a lease session.
func incidentOf(chain txmanager.ChainConnector, w txmanager.SubmitterState, book txmanager.Store) *incident {
	return &incident{Session: &session.Session{Service: new(sessiontest.Service(rulesOf(3), book)), Chain: chain, State: w, Began: time.Now()}}
}

// inProtect is w with an open PROTECT incident.
func inProtect(w txmanager.SubmitterState) txmanager.SubmitterState {
	w.Incident, w.Protected = 1, true
	return w
}

// evidenceStore stores the foreign transactions that are read. Another owner has taken the lease.
type evidenceStore struct {
	txmanager.Store
	stored  []txmanager.ForeignTransaction
	open    []txmanager.OpenRequest
	known   map[string]txmanager.NamedRequest
	read    txmanager.ForeignScan // as stored
	refuses error                 // to store transactions
}

func (b *evidenceStore) Renew(context.Context, lease.Lease) (lease.Lease, error) {
	return lease.Lease{}, lease.ErrFenced
}

func (b *evidenceStore) FinalTransactions(context.Context, txmanager.Submitter, []txmanager.Hash) ([]txmanager.FinalTx, error) {
	return nil, nil
}

func (b *evidenceStore) ForeignScan(_ context.Context, _ txmanager.Submitter, incident int, _ uint64) (txmanager.ForeignScan, error) {
	r := b.read
	r.Incident = incident
	return r, nil
}

func (b *evidenceStore) StoreForeignTransactions(_ context.Context, _ lease.Lease, all []txmanager.ForeignTransaction, scan *txmanager.ForeignScan) error {
	if scan != nil {
		b.read = *scan
		b.read.MovedAt = txtest.Now
	}
	if b.refuses == nil {
		b.stored = append(b.stored, all...)
	}
	return b.refuses
}

func (b *evidenceStore) ForeignTransactions(_ context.Context, _ txmanager.Submitter, from, below uint64) (found []txmanager.ForeignTransaction, err error) {
	for _, f := range b.stored {
		if f.Nonce >= from && f.Nonce < below {
			found = append(found, f)
		}
	}
	return found, nil
}

func (b *evidenceStore) OpenRequests(context.Context, txmanager.Submitter) ([]txmanager.OpenRequest, error) {
	return b.open, nil
}

func (b *evidenceStore) LostNonces(context.Context, txmanager.Submitter) (txmanager.LostNonces, error) {
	return txmanager.LostNonces{}, nil
}

func (b *evidenceStore) NamedRequests(context.Context, txmanager.Submitter, []string) (map[string]txmanager.NamedRequest, error) {
	return b.known, nil
}

// The consuming transaction of an intent's nonce is one node's claim. Other nodes must have its
// receipt before it ends an intent, with or without a name.
func TestConsumingTransactionsNeedAQuorum(t *testing.T) {
	t.Parallel()
	x := txtest.Pending(5)
	x.Payload = []byte("call")
	w := txtest.StateOf(1, 6, x)
	counts := func(chain ...txmanager.Header) txmanager.ChainObservation {
		v := txtest.Watching(txtest.ViewOf(w, txtest.Block('a', 100)), chain...)
		v.FinalCount = new(uint64(6))
		v.Receipts = map[txmanager.Hash]txmanager.ReceiptAnswer{x.Versions[0]: {Answer: txmanager.AnswerNotFound}}
		return v
	}
	a, b := counts(txtest.Block('a', 95)), counts(txtest.Block('b', 95))
	for name, c := range map[string]struct {
		views []txmanager.ChainObservation
		named bool
		want  bool
	}{
		"all have the block":     {txtest.OfNodes(a, a, a), false, true},
		"alone with it":          {txtest.OfNodes(a, b, b), false, false},
		"alone, and it is named": {txtest.OfNodes(a, b, b), true, false}, // the request ends by its receipt
	} {
		p := &txtest.Panel{ChainConnector: txtest.Reader(nil), Views: c.views, Needed: 2, Consuming: func(uint64) (txmanager.ConsumingTx, error) {
			return txmanager.ConsumingTx{Hash: txmanager.Hash{7}, BlockNumber: 95, BlockHash: txtest.Block('a', 95).Hash, Node: "n0", ValueWei: "12345"}, nil
		}}
		for i := range p.Views {
			v := &p.Views[i]
			v.Receipts = map[txmanager.Hash]txmanager.ReceiptAnswer{x.Versions[0]: {Answer: txmanager.AnswerNotFound},
				{7}: {Answer: txmanager.AnswerFound, Receipt: txmanager.Receipt{TxHash: txmanager.Hash{7}, BlockNumber: 95, BlockHash: v.HashesAt[95], Succeeded: true}}}
		}
		tn := incidentOf(p, w, &evidenceStore{})
		tn.State.Incident = 1
		l := txmanager.ReleaseRequest{Count: 6}
		if c.named {
			l.Requests = map[uint64]string{5: "r"}
		}
		_, _, err := tn.planResync(t.Context(), &l, txmanager.LostNonces{})
		if got := err == nil; got != c.want || err != nil && !errors.Is(err, txmanager.ErrNoQuorum) {
			t.Errorf("%s: got %v, want released %v", name, err, c.want)
		}
	}
}

// A node that gave no answer is queried again. An operator reads that a consuming transaction is
// unknown only where the node answered that it cannot give it.
func TestANodeWithoutAnAnswerIsAskedAgain(t *testing.T) {
	t.Parallel()
	x := txtest.Pending(5)
	x.Payload = []byte("call")
	w := txtest.StateOf(1, 6, x)
	var open txmanager.UnnamedNonceError
	for name, c := range map[string]struct {
		err   error
		again bool
	}{
		"connection refused": {errors.New("dial tcp: connection refused"), true},
		"no answer in time":  {context.DeadlineExceeded, true},
		"not consumed there": {txmanager.ErrNotConsumed, true},
		"an old state":       {fmt.Errorf("%w: missing trie node", txmanager.ErrConsumerUnavailable), false},
	} {
		v := txtest.Watching(txtest.ViewOf(w, txtest.Block('a', 100)), txtest.Block('a', 95))
		v.FinalCount = new(uint64(6))
		v.Receipts = map[txmanager.Hash]txmanager.ReceiptAnswer{x.Versions[0]: {Answer: txmanager.AnswerNotFound}}
		p := &txtest.Panel{ChainConnector: txtest.Reader(nil), Views: txtest.OfNodes(v, v, v), Needed: 2,
			Consuming: func(uint64) (txmanager.ConsumingTx, error) { return txmanager.ConsumingTx{}, c.err }}
		tn := incidentOf(p, w, &evidenceStore{})
		tn.State.Incident = 1
		_, _, err := tn.planResync(t.Context(), &txmanager.ReleaseRequest{Count: 6}, txmanager.LostNonces{})
		if again := errors.Is(err, txmanager.ErrStillReading); again != c.again || !again && !errors.As(err, &open) {
			t.Errorf("%s: got %v, want to be asked again %v", name, err, c.again)
		}
	}
}
