package protect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// expired is a chain without a node that knows, from counts or blocks, which transaction consumed
// a nonce. Some transactions are known by their hashes.
type expired struct {
	*txtest.Panel
	byHash map[txmanager.Hash]txmanager.SignedTransaction
	err    error // in place of a transaction
}

func (c expired) Transaction(_ context.Context, h txmanager.Hash) (txmanager.SignedTransaction, error) {
	tx, ok := c.byHash[h]
	switch {
	case c.err != nil:
		return tx, c.err
	case !ok:
		return tx, fmt.Errorf("%w: %s", txmanager.ErrNoTransaction, h)
	}
	return tx, nil
}

// unproved is a submitter with consumed nonce 0, whose consuming transaction no node gives, and
// with one queued request.
func unproved(views ...txmanager.ChainObservation) (c expired, tn *incident, book *evidenceStore) {
	w := inProtect(txtest.StateOf(1, 0))
	c = expired{&txtest.Panel{ChainConnector: txtest.Reader(nil), Views: txtest.OfNodes(views...), Needed: 2}, map[txmanager.Hash]txmanager.SignedTransaction{}, nil}
	book = &evidenceStore{known: map[string]txmanager.NamedRequest{"waits": {TxID: "t-1", State: txmanager.Queued}}, open: []txmanager.OpenRequest{{RequestID: "waits", TxID: "t-1", Payload: []byte("pay")}}}
	tn = incidentOf(c, w, book)
	tn.ForOperator = true
	return c, tn, book
}

// consumed is a node's observation in which the nonces below count are consumed, at finality.
func consumed(count uint64, receipts ...txmanager.Receipt) txmanager.ChainObservation {
	v := txtest.Finding(txtest.Watching(txtest.ViewOf(txtest.StateOf(1, 0), txtest.Block('a', 100)), txtest.Block('a', 95)), receipts...)
	v.FinalCount, v.Account.LatestCount = &count, count
	return v
}

// receiptOf is the receipt of a transaction in block 95.
func receiptOf(h txmanager.Hash, succeeded bool) txmanager.Receipt {
	return txmanager.Receipt{TxHash: h, BlockNumber: 95, BlockHash: txtest.Block('a', 95).Hash, Succeeded: succeeded, Document: []byte(`{}`)}
}

// foreignAt is a foreign transaction of value wei in block 95, which consumed nonce n.
func foreignAt(n uint64, h txmanager.Hash, to txmanager.Address, wei string) txmanager.ForeignTransaction {
	tx := txmanager.ConsumingTx{Hash: h, BlockNumber: 95, BlockHash: txtest.Block('a', 95).Hash, To: &to, ValueWei: wei}
	return txmanager.ForeignTransaction{Nonce: n, Incident: 1, Tx: tx, CallDigest: tx.CallDigest(), Succeeded: true}
}

// A name alone does not end a request CONFIRMED. Where no node gives the consuming transaction,
// the release needs its hash and reads it from a quorum.
func TestANameIsProvedByTheHash(t *testing.T) {
	t.Parallel()
	h, other := txmanager.Hash{0xaa}, txmanager.Hash{0xbb}
	to := eip155.Address([20]byte{19: 0xb0})
	elsewhere := receiptOf(h, true)
	elsewhere.BlockHash = txmanager.Hash{0xcc}
	none := consumed(1)
	none.Receipts = map[txmanager.Hash]txmanager.ReceiptAnswer{h: {Answer: txmanager.AnswerNotFound}}
	silent := consumed(1)
	has, reverted := consumed(1, receiptOf(h, true)), consumed(1, receiptOf(h, false))
	ours := txmanager.SignedTransaction{From: txtest.Alice.Address(), Tx: txmanager.ConsumingTx{Hash: h, To: &to, ValueWei: "1"}}
	strangers, later := ours, ours
	strangers.From, later.Nonce = eip155.Address([20]byte{7}), 3
	for name, c := range map[string]struct {
		hashes   map[uint64]txmanager.Hash
		executed string
		tx       txmanager.SignedTransaction
		err      error
		views    []txmanager.ChainObservation
		want     txmanager.NamingEffect // "": refused
		field    string
		says     string
	}{
		"no hash":                       {nil, "", ours, nil, []txmanager.ChainObservation{has, has, has}, "", "hashes", "give the transaction's hash"},
		"by its hash":                   {map[uint64]txmanager.Hash{0: h}, "", ours, nil, []txmanager.ChainObservation{has, has, has}, txmanager.NamedRecorded, "", ""},
		"it reverted":                   {map[uint64]txmanager.Hash{0: h}, "", ours, nil, []txmanager.ChainObservation{reverted, reverted, reverted}, txmanager.NamedReverted, "", ""},
		"by the second and third node":  {map[uint64]txmanager.Hash{0: h}, "", ours, nil, []txmanager.ChainObservation{none, has, has}, txmanager.NamedRecorded, "", ""},
		"one node of three has it":      {map[uint64]txmanager.Hash{0: h}, "", ours, nil, []txmanager.ChainObservation{none, has, none}, "", "hashes", "archive node"},
		"the nodes contradict":          {map[uint64]txmanager.Hash{0: h}, "", ours, nil, []txmanager.ChainObservation{has, reverted, reverted}, "", "hashes", "too few nodes"},
		"in other blocks":               {map[uint64]txmanager.Hash{0: h}, "", ours, nil, []txmanager.ChainObservation{has, consumed(1, elsewhere), none}, "", "hashes", "too few nodes"},
		"no node has the receipt":       {map[uint64]txmanager.Hash{0: h}, "", ours, nil, []txmanager.ChainObservation{none, none, none}, "", "hashes", "archive node"},
		"a receipt not answered":        {map[uint64]txmanager.Hash{0: h}, "", ours, nil, []txmanager.ChainObservation{silent, silent, silent}, "", "", "still being read"},
		"no node knows it":              {map[uint64]txmanager.Hash{0: other}, "", ours, nil, []txmanager.ChainObservation{has, has, has}, "", "hashes", "no node knows a transaction"},
		"nodes away":                    {map[uint64]txmanager.Hash{0: h}, "", ours, errors.New("connection refused"), []txmanager.ChainObservation{has, has, has}, "", "", "still being read"},
		"another account's":             {map[uint64]txmanager.Hash{0: h}, "", strangers, nil, []txmanager.ChainObservation{has, has, has}, "", "hashes", "not by the account"},
		"of another nonce":              {map[uint64]txmanager.Hash{0: h}, "", later, nil, []txmanager.ChainObservation{has, has, has}, "", "hashes", "has nonce 3"},
		"a hash for a nonce not lost":   {map[uint64]txmanager.Hash{0: h, 1: h}, "", ours, nil, []txmanager.ChainObservation{has, has, has}, "", "hashes", "nonce 1: the chain has not consumed it"},
		"the operator's statement":      {nil, "the explorer of 2024", ours, nil, []txmanager.ChainObservation{has, has, has}, txmanager.NamedRecorded, "", ""},
		"a statement of what is proved": {map[uint64]txmanager.Hash{0: h}, "the explorer of 2024", ours, nil, []txmanager.ChainObservation{has, has, has}, "", "executed", "leave executed out"},
	} {
		chain, tn, book := unproved(c.views...)
		chain.byHash[h], chain.err = c.tx, c.err
		tn.Chain = chain
		l := txmanager.ReleaseRequest{Mode: txmanager.Resync, Count: 1, Requests: map[uint64]string{0: "waits"}, Hashes: c.hashes}
		if c.executed != "" {
			l.Executed = map[uint64]string{0: c.executed}
		}
		_, out, err := tn.planResync(t.Context(), &l, txmanager.LostNonces{})
		why, refused := errors.AsType[txmanager.UnprovedError](err)
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
		} else if f := book.stored; len(f) != 1 || f[0].Tx.Hash != h || f[0].Succeeded != (c.want == txmanager.NamedRecorded) || f[0].Receipt == nil || f[0].CallDigest != ours.Tx.CallDigest() || f[0].Tx.BlockNumber != 95 {
			t.Errorf("%s: got %+v stored, want the transaction with its receipt", name, f)
		}
	}
}

// A nonce whose transaction was not read matches no request, even if only one waits.
func TestOthersMatchingProvesNothing(t *testing.T) {
	t.Parallel()
	_, tn, _ := unproved(consumed(1), consumed(1), consumed(1))
	l := txmanager.ReleaseRequest{Mode: txmanager.Resync, Count: 1, Matching: true}
	if _, out, err := tn.planResync(t.Context(), &l, txmanager.LostNonces{}); !errors.As(err, new(txmanager.UnprovedError)) {
		t.Errorf("got %+v, %v; want the hash asked for", out, err)
	}
}

// A reorg below finality removed the stored transaction. The one whose hash the operator gives
// replaces it once it is proved, and the release continues. A wrong hash changes nothing.
func TestAHashReplacesWhatAReorgRemoved(t *testing.T) {
	t.Parallel()
	h, gone := txmanager.Hash{0xaa}, txmanager.Hash{0xee}
	v := consumed(1, receiptOf(h, true))
	v.Receipts[txmanager.Hash{0xbb}] = txmanager.ReceiptAnswer{Answer: txmanager.AnswerNotFound}
	for hash, taken := range map[txmanager.Hash]bool{{}: false, {0xbb}: false, h: true} {
		chain, tn, book := unproved(v, v, v)
		chain.byHash[h] = txmanager.SignedTransaction{From: txtest.Alice.Address(), Tx: txmanager.ConsumingTx{Hash: h, To: new(eip155.Address([20]byte{19: 0xb0})), ValueWei: "1"}}
		chain.byHash[txmanager.Hash{0xbb}] = txmanager.SignedTransaction{From: txtest.Alice.Address(), Tx: txmanager.ConsumingTx{Hash: txmanager.Hash{0xbb}, ValueWei: "1"}}
		book.stored = []txmanager.ForeignTransaction{{Nonce: 0, Incident: 1, Tx: txmanager.ConsumingTx{Hash: gone, BlockNumber: 95, BlockHash: txmanager.Hash{0xcc}, ValueWei: "1"}, Succeeded: true}}
		l := txmanager.ReleaseRequest{Mode: txmanager.Resync, Count: 1, Requests: map[uint64]string{0: "waits"}}
		if hash != (txmanager.Hash{}) {
			l.Hashes = map[uint64]txmanager.Hash{0: hash}
		}
		_, out, err := tn.planResync(t.Context(), &l, txmanager.LostNonces{})
		if taken != (err == nil) || taken && (len(out.Named) != 1 || *out.Named[0].TxHash != h) || !taken && len(book.stored) != 1 {
			t.Errorf("hash %s: got %+v, %v; want it taken %v", hash, out.Named, err, taken)
		}
	}
}
