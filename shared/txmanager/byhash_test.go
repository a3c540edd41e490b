package txmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// expired is a chain without a node that knows, from counts or blocks, which transaction consumed
// a nonce. Some transactions are known by their hashes.
type expired struct {
	*panel
	byHash map[Hash]SignedTransaction
	err    error // in place of a transaction
}

func (expired) ReadBlocks(context.Context, BlocksQuery) (BlocksRead, error) {
	return BlocksRead{}, ErrConsumerUnavailable
}

func (c expired) Transaction(_ context.Context, h Hash) (SignedTransaction, error) {
	tx, ok := c.byHash[h]
	switch {
	case c.err != nil:
		return tx, c.err
	case !ok:
		return tx, fmt.Errorf("%w: %s", ErrNoTransaction, h)
	}
	return tx, nil
}

// unproved is a submitter with consumed nonce 0, whose consuming transaction no node gives, and
// with one queued request.
func unproved(views ...ChainObservation) (c expired, tn *incident, book *evidenceStore) {
	w := stateOf(1, 0)
	w.Incident, w.Protected = 1, true
	c = expired{&panel{ChainConnector: reader(nil), views: ofNodes(views...), quorum: 2}, map[Hash]SignedTransaction{}, nil}
	book = &evidenceStore{known: map[string]NamedRequest{"waits": {TxID: "t-1", State: Queued}}, open: []OpenRequest{{RequestID: "waits", TxID: "t-1", Payload: []byte("pay")}}}
	return c, &incident{leaseSession: &leaseSession{Service: &Service{Rules: rulesOf(3), Log: slog.New(slog.DiscardHandler), Store: book, Timing: testTiming}, chain: c, state: w, began: time.Now(), forOperator: true}}, book
}

// consumed is a node's observation in which the nonces below count are consumed, at finality.
func consumed(count uint64, receipts ...Receipt) ChainObservation {
	v := finding(watching(viewOf(stateOf(1, 0), block('a', 100)), block('a', 95)), receipts...)
	v.FinalCount, v.Account.LatestCount = &count, count
	return v
}

// A name alone does not end a request CONFIRMED. Where no node gives the consuming transaction,
// the release needs its hash and reads it from a quorum.
func TestANameIsProvedByTheHash(t *testing.T) {
	t.Parallel()
	h, other := Hash{0xaa}, Hash{0xbb}
	to := Address{19: 0xb0}
	at := func(succeeded bool) Receipt {
		return Receipt{TxHash: h, BlockNumber: 95, BlockHash: block('a', 95).Hash, Succeeded: succeeded, Document: []byte(`{}`)}
	}
	elsewhere := at(true)
	elsewhere.BlockHash = Hash{0xcc}
	none := consumed(1)
	none.Receipts = map[Hash]ReceiptAnswer{h: {Answer: AnswerNotFound}}
	silent := consumed(1)
	has, reverted := consumed(1, at(true)), consumed(1, at(false))
	ours := SignedTransaction{From: alice.Address(), Tx: ConsumingTx{Hash: h, To: &to, ValueWei: "1"}}
	strangers, later := ours, ours
	strangers.From, later.Nonce = Address{7}, 3
	for name, c := range map[string]struct {
		hashes   map[uint64]Hash
		executed string
		tx       SignedTransaction
		err      error
		views    []ChainObservation
		want     NamingEffect // "": refused
		field    string
		says     string
	}{
		"no hash":                       {nil, "", ours, nil, []ChainObservation{has, has, has}, "", "hashes", "give the transaction's hash"},
		"by its hash":                   {map[uint64]Hash{0: h}, "", ours, nil, []ChainObservation{has, has, has}, NamedRecorded, "", ""},
		"it reverted":                   {map[uint64]Hash{0: h}, "", ours, nil, []ChainObservation{reverted, reverted, reverted}, NamedReverted, "", ""},
		"by the second and third node":  {map[uint64]Hash{0: h}, "", ours, nil, []ChainObservation{none, has, has}, NamedRecorded, "", ""},
		"one node of three has it":      {map[uint64]Hash{0: h}, "", ours, nil, []ChainObservation{none, has, none}, "", "hashes", "archive node"},
		"the nodes contradict":          {map[uint64]Hash{0: h}, "", ours, nil, []ChainObservation{has, reverted, reverted}, "", "hashes", "too few nodes"},
		"in other blocks":               {map[uint64]Hash{0: h}, "", ours, nil, []ChainObservation{has, consumed(1, elsewhere), none}, "", "hashes", "too few nodes"},
		"no node has the receipt":       {map[uint64]Hash{0: h}, "", ours, nil, []ChainObservation{none, none, none}, "", "hashes", "archive node"},
		"a receipt not answered":        {map[uint64]Hash{0: h}, "", ours, nil, []ChainObservation{silent, silent, silent}, "", "", "still being read"},
		"no node knows it":              {map[uint64]Hash{0: other}, "", ours, nil, []ChainObservation{has, has, has}, "", "hashes", "no node knows a transaction"},
		"nodes away":                    {map[uint64]Hash{0: h}, "", ours, errors.New("connection refused"), []ChainObservation{has, has, has}, "", "", "still being read"},
		"another account's":             {map[uint64]Hash{0: h}, "", strangers, nil, []ChainObservation{has, has, has}, "", "hashes", "not by the account"},
		"of another nonce":              {map[uint64]Hash{0: h}, "", later, nil, []ChainObservation{has, has, has}, "", "hashes", "has nonce 3"},
		"a hash for a nonce not lost":   {map[uint64]Hash{0: h, 1: h}, "", ours, nil, []ChainObservation{has, has, has}, "", "hashes", "nonce 1: the chain has not consumed it"},
		"the operator's statement":      {nil, "the explorer of 2024", ours, nil, []ChainObservation{has, has, has}, NamedRecorded, "", ""},
		"a statement of what is proved": {map[uint64]Hash{0: h}, "the explorer of 2024", ours, nil, []ChainObservation{has, has, has}, "", "executed", "leave executed out"},
	} {
		chain, tn, book := unproved(c.views...)
		chain.byHash[h], chain.err = c.tx, c.err
		tn.chain = chain
		l := ReleaseRequest{Mode: Resync, Count: 1, Requests: map[uint64]string{0: "waits"}, Hashes: c.hashes}
		if c.executed != "" {
			l.Executed = map[uint64]string{0: c.executed}
		}
		_, out, err := tn.planResync(t.Context(), &l, LostNonces{})
		why, refused := errors.AsType[UnprovedError](err)
		switch {
		case c.want == "":
			if err == nil || refused != (c.field != "") || why.Field != c.field || !strings.Contains(err.Error(), c.says) || len(l.EndedRequests) != 0 {
				t.Errorf("%s: got %+v, %v; want it refused by field %q, with %q", name, out, err, c.field, c.says)
			}
			continue
		case err != nil || len(out.Named) != 1 || out.Named[0].Effect != c.want || out.Named[0].Stated != (c.executed != ""):
			t.Errorf("%s: got %+v, %v; want %s", name, out.Named, err, c.want)
			continue
		}
		if c.executed != "" {
			if len(book.stored) != 0 || out.Named[0].TxHash != nil {
				t.Errorf("%s: got %v stored and %v named, want no transaction", name, book.stored, out.Named)
			}
		} else if f := book.stored; len(f) != 1 || f[0].Tx.Hash != h || f[0].Succeeded != (c.want == NamedRecorded) || f[0].Receipt == nil || f[0].CallDigest != ours.Tx.CallDigest() || f[0].Tx.BlockNumber != 95 {
			t.Errorf("%s: got %+v stored, want the transaction with its receipt", name, f)
		}
	}
}

// A nonce whose transaction was not read matches no request, even if only one waits.
func TestOthersMatchingProvesNothing(t *testing.T) {
	t.Parallel()
	_, tn, _ := unproved(consumed(1), consumed(1), consumed(1))
	l := ReleaseRequest{Mode: Resync, Count: 1, Matching: true}
	if _, out, err := tn.planResync(t.Context(), &l, LostNonces{}); !errors.As(err, new(UnprovedError)) {
		t.Errorf("got %+v, %v; want the hash asked for", out, err)
	}
}

// A reorg below finality removed the stored transaction. The one whose hash the operator gives
// replaces it once it is proved, and the release continues. A wrong hash changes nothing.
func TestAHashReplacesWhatAReorgRemoved(t *testing.T) {
	t.Parallel()
	h, gone := Hash{0xaa}, Hash{0xee}
	v := consumed(1, Receipt{TxHash: h, BlockNumber: 95, BlockHash: block('a', 95).Hash, Succeeded: true, Document: []byte(`{}`)})
	v.Receipts[Hash{0xbb}] = ReceiptAnswer{Answer: AnswerNotFound}
	for hash, taken := range map[Hash]bool{{}: false, {0xbb}: false, h: true} {
		chain, tn, book := unproved(v, v, v)
		chain.byHash[h] = SignedTransaction{From: alice.Address(), Tx: ConsumingTx{Hash: h, To: &Address{19: 0xb0}, ValueWei: "1"}}
		chain.byHash[Hash{0xbb}] = SignedTransaction{From: alice.Address(), Tx: ConsumingTx{Hash: Hash{0xbb}, ValueWei: "1"}}
		book.stored = []ForeignTransaction{{Nonce: 0, Incident: 1, Tx: ConsumingTx{Hash: gone, BlockNumber: 95, BlockHash: Hash{0xcc}, ValueWei: "1"}, Succeeded: true}}
		l := ReleaseRequest{Mode: Resync, Count: 1, Requests: map[uint64]string{0: "waits"}}
		if hash != (Hash{}) {
			l.Hashes = map[uint64]Hash{0: hash}
		}
		_, out, err := tn.planResync(t.Context(), &l, LostNonces{})
		if taken != (err == nil) || taken && (len(out.Named) != 1 || *out.Named[0].TxHash != h) || !taken && len(book.stored) != 1 {
			t.Errorf("hash %s: got %+v, %v; want it taken %v", hash, out.Named, err, taken)
		}
	}
}

// A request that ended by an operator's statement says so.
func TestAStatementIsNoReceipt(t *testing.T) {
	t.Parallel()
	x := endRecorded(pending(3), Recorded{Nonce: 3})
	if x.State != Confirmed || x.Sub != RecordedOnChain || x.Receipt != nil || x.LastError != StatedAsExecuted {
		t.Errorf("got %+v, want it CONFIRMED/RECORDED on an operator's statement", x)
	}
}
