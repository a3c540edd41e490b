package chaintest

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// revert is init code that reverts: PUSH1 0, PUSH1 0, REVERT.
var revert = []byte{0x60, 0, 0x60, 0, 0xfd}

// endless is the code of a deployment that exceeds any gas limit: it writes 16 MiB into its memory, which
// costs more than any block has. The node knows that at once, without computing.
var endless = []byte{0x60, 1, 0x63, 1, 0, 0, 0, 0x52, 0} // PUSH1 1, PUSH4 2^24, MSTORE, STOP

// absentHash is a hash that no chain has.
var absentHash = txmanager.Hash{0: 0xde, 31: 0xad}

func (b contract) EmptyQueryReturnsTheHead(t *testing.T) {
	before := b.query(t, txmanager.ChainQuery{})
	b.mine(t, 2)
	after := b.query(t, txmanager.ChainQuery{})
	check.Equal(t, "head", after.Head.Number, before.Head.Number+2)
	if after.Head.Hash == before.Head.Hash || after.Head.Parent == (txmanager.Hash{}) || after.Head.Time == 0 {
		t.Errorf("head: got %+v, want another hash, a parent and a time", after.Head)
	}
	if oneFee := b.Family.OneFee; oneFee != (after.BaseFeeWei == nil) || !oneFee && after.BaseFeeWei.Sign() <= 0 {
		t.Errorf("base fee: got %s, want a positive one, or none on a chain without base fees", after.BaseFeeWei)
	}
	if after.Node == "" || strings.Contains(after.Node, "@") {
		t.Errorf("node: got %q, want a name without credentials", after.Node)
	}
	if len(after.Receipts)+len(after.Known)+len(after.Headers)+len(after.Estimates) > 0 || after.Tagged != nil {
		t.Errorf("view: got %+v, want nothing that was not asked for", after)
	}
}

func (b contract) Account(t *testing.T) {
	first := b.query(t, txmanager.ChainQuery{Account: true}).Account
	if first.LatestCount != 0 || first.PendingCount != 0 || first.HasCode {
		t.Errorf("fresh account: got %+v, want counts of 0 and no code", first)
	}
	b.mustSend(t, b.tx(t, 0, nil), b.tx(t, 1, nil))
	b.wantCounts(t, "before the block", 0, 2)
	b.mine(t, 1)
	last := b.query(t, txmanager.ChainQuery{Account: true}).Account
	b.wantCounts(t, "after the block", 2, 2)
	if last.BalanceWei.Cmp(first.BalanceWei) >= 0 {
		t.Errorf("balance: got %s, want less than %s", last.BalanceWei, first.BalanceWei)
	}
	if b.Family.OneFee {
		if last.GasPriceWei.Sign() <= 0 || last.TipWei != nil {
			t.Errorf("fees: got price %s and tip %s, want a positive price alone", last.GasPriceWei, last.TipWei)
		}
	} else if last.BaseFeeWei.Sign() <= 0 || last.TipWei.Sign() < 0 {
		t.Errorf("fees: got base %s and tip %s, want positive ones", last.BaseFeeWei, last.TipWei)
	}
}

func (b contract) ReceiptFoundNotFound(t *testing.T) {
	tx := b.tx(t, 0, nil)
	q := txmanager.ChainQuery{Receipts: []txmanager.Hash{tx.Hash, absentHash}}
	b.mustSend(t, tx)
	check.Equal(t, "receipt of a pending transaction: answer", b.query(t, q).Receipts[tx.Hash].Answer, txmanager.AnswerNotFound)
	b.mine(t, 1)
	v := b.query(t, q)
	got := v.Receipts[tx.Hash]
	if got.Answer != txmanager.AnswerFound || !got.Receipt.Succeeded || got.Receipt.TxHash != tx.Hash ||
		got.Receipt.BlockHash != v.Head.Hash || got.Receipt.BlockNumber != v.Head.Number {
		t.Errorf("receipt: got %+v, want a success in the head %+v", got, v.Head)
	}
	var document struct{ GasUsed string }
	if err := json.Unmarshal(got.Receipt.Document, &document); err != nil || document.GasUsed == "" {
		t.Errorf("document: got %s, want the node's receipt, whole", got.Receipt.Document)
	}
	check.Equal(t, "receipt of an absent hash: answer", v.Receipts[absentHash].Answer, txmanager.AnswerNotFound)
}

// Each answer that is neither a receipt nor null leaves the receipt unknown, and the rest of the observation
// unchanged.
func (b overJSONRPC) ReceiptUnknown(t *testing.T) {
	tx := b.tx(t, 0, nil)
	b.include(t, 1, tx)
	q := txmanager.ChainQuery{Account: true, Receipts: []txmanager.Hash{tx.Hash}}
	for name, response := range map[string]map[string]any{
		"an index being built": NodeError("transaction indexing is in progress"),
		"a list":               {"result": []string{}},
		"no status":            {"result": map[string]any{"transactionHash": tx.Hash, "blockHash": absentHash, "blockNumber": "0x1"}},
		"no block":             {"result": map[string]any{"transactionHash": tx.Hash, "blockHash": nil, "blockNumber": nil, "status": "0x1"}},
		"another transaction":  {"result": map[string]any{"transactionHash": absentHash, "blockHash": absentHash, "blockNumber": "0x1", "status": "0x1"}},
		"neither of both":      {},
	} {
		b.proxy.Set(FaultyMethod("eth_getTransactionReceipt", response))
		v := b.query(t, q)
		if got, ok := v.Receipts[tx.Hash]; !ok || got.Answer != txmanager.AnswerUnknown {
			t.Errorf("%s: got %+v, want unknown", name, got)
		}
		check.Equal(t, name+": latest count", v.Account.LatestCount, 1)
	}
}

func (b contract) RevertedReceipt(t *testing.T) {
	tx := b.tx(t, 0, b.fails)
	b.include(t, 1, tx)
	got := b.query(t, txmanager.ChainQuery{Receipts: []txmanager.Hash{tx.Hash}}).Receipts[tx.Hash]
	if got.Answer != txmanager.AnswerFound || got.Receipt.Succeeded {
		t.Errorf("receipt: got %+v, want found and not succeeded", got)
	}
}

func (b contract) KnownPendingThenDropped(t *testing.T) {
	mined, dropped := b.tx(t, 0, nil), b.tx(t, 1, nil)
	q := txmanager.ChainQuery{Known: []txmanager.Hash{mined.Hash, dropped.Hash, absentHash}}
	want := func(when string, answers ...txmanager.Answer) {
		t.Helper()
		v := b.query(t, q)
		for i, h := range q.Known {
			check.Equal(t, fmt.Sprintf("%s, hash %d", when, i), v.Known[h], answers[i])
		}
	}
	b.include(t, 1, mined)
	b.mustSend(t, dropped)
	want("one pending", txmanager.AnswerFound, txmanager.AnswerFound, txmanager.AnswerNotFound)
	check.OK(t)(b.DropPool())
	want("dropped", txmanager.AnswerFound, txmanager.AnswerNotFound, txmanager.AnswerNotFound)
	b.wantCounts(t, "dropped", 1, 1)
	b.mustSend(t, dropped)
	want("sent again", txmanager.AnswerFound, txmanager.AnswerFound, txmanager.AnswerNotFound)
	b.wantCounts(t, "sent again", 1, 2)
	if b.proxy == nil {
		return
	}
	b.proxy.Set(FaultyMethod("eth_getTransactionByHash", NodeError("transaction indexing is in progress")))
	want("no index", txmanager.AnswerUnknown, txmanager.AnswerUnknown, txmanager.AnswerUnknown)
}

func (b contract) HeadersLinked(t *testing.T) {
	b.mine(t, 8)
	head := b.query(t, txmanager.ChainQuery{}).Head
	for name, c := range map[string]struct{ from, to, last uint64 }{
		"inside":        {head.Number - 5, head.Number - 2, head.Number - 2},
		"to the head":   {head.Number - 5, head.Number, head.Number},
		"past the head": {head.Number - 5, head.Number + 7, head.Number},
		"one":           {head.Number, head.Number, head.Number},
	} {
		headers := b.query(t, txmanager.ChainQuery{FromBlock: c.from, ToBlock: c.to}).Headers
		var numbers, want []uint64
		for i, h := range headers {
			numbers = append(numbers, h.Number)
			if i > 0 && h.Parent != headers[i-1].Hash {
				t.Errorf("%s: header %d has parent %s, want %s", name, h.Number, h.Parent, headers[i-1].Hash)
			}
		}
		for n := c.from; n <= c.last; n++ {
			want = append(want, n)
		}
		check.Same(t, name+": headers", numbers, want)
	}
	check.Equal(t, "headers after the head", len(b.query(t, txmanager.ChainQuery{FromBlock: head.Number + 1, ToBlock: head.Number + 3}).Headers), 0)
}

// One header that is missing, or of another fork, makes the whole list absent.
func (b overJSONRPC) HeadersNotLinked(t *testing.T) {
	b.mine(t, 8)
	head := b.query(t, txmanager.ChainQuery{}).Head
	for name, fault := range wrongBlocks {
		for _, c := range []struct{ height, to uint64 }{
			{head.Number - 5, head.Number}, {head.Number - 3, head.Number}, {head.Number - 1, head.Number},
			{head.Number, head.Number}, {head.Number - 1, head.Number - 1}, // only the head shows it
		} {
			b.proxy.Set(fault(blockAt(c.height)))
			headers := b.query(t, txmanager.ChainQuery{FromBlock: head.Number - 5, ToBlock: c.to}).Headers
			check.Equal(t, fmt.Sprintf("%s at %d: headers", name, c.height), len(headers), 0)
		}
	}
}

func (b contract) EstimateDoneRefusedUnknown(t *testing.T) {
	to := b.to()
	tooMuch := new(big.Int).Lsh(big.NewInt(1), 200)
	q := txmanager.ChainQuery{Estimates: []txmanager.Call{{To: to, Value: big.NewInt(1)}, b.Family.Failing, {To: to, Value: tooMuch}}}
	wanted := []txmanager.Outcome{txmanager.Done, txmanager.Refused, b.PoorEstimate}
	if b.Key != nil {
		q.Estimates, wanted = append(q.Estimates, txmanager.Call{Value: new(big.Int), Data: endless}), append(wanted, b.EndlessEstimate)
	}
	got := b.query(t, q).Estimates
	if len(got) != len(wanted) {
		t.Fatalf("estimates: got %d, want %d", len(got), len(wanted))
	}
	for i, want := range wanted {
		if got[i].Outcome != want || (want == txmanager.Done) != (got[i].Gas > 0) || b.Key != nil && want == txmanager.Done && got[i].Gas < 21_000 || (want == txmanager.Done) != (got[i].Reason == "") {
			t.Errorf("estimate %d: got %+v, want %s", i, got[i], want)
		}
		check.Equal(t, fmt.Sprintf("estimate %d: unfunded", i), got[i].Unfunded, i == 2 && want == txmanager.Unknown)
	}
	if b.proxy == nil {
		return
	}
	b.proxy.Set(FaultyMethod("eth_estimateGas", NodeError("execution aborted (timeout = 5s)")))
	for i, e := range b.query(t, q).Estimates {
		if e.Outcome != txmanager.Unknown || e.Reason == "" {
			t.Errorf("estimate %d without an answer: got %+v, want unknown with a reason", i, e)
		}
	}
}

func (b contract) OneRoundTrip(t *testing.T) {
	to := b.to()
	tx := b.tx(t, 0, nil)
	b.include(t, 3, tx)
	before := b.Family.RoundTrips()
	b.query(t, txmanager.ChainQuery{Account: true, Receipts: []txmanager.Hash{tx.Hash, absentHash}, Known: []txmanager.Hash{tx.Hash},
		FromBlock: 1, ToBlock: 30, Estimates: []txmanager.Call{{To: to, Value: big.NewInt(1)}}, Finality: "finalized"})
	check.Equal(t, "round trips of a query for everything", b.Family.RoundTrips()-before, 1)
	before = b.Family.RoundTrips()
	b.mustSend(t, b.tx(t, 1, nil), b.tx(t, 2, nil), b.tx(t, 3, nil))
	check.Equal(t, "round trips of three transactions", b.Family.RoundTrips()-before, 1)
}

// Without the head, or a requested part of the account, the query fails as a whole.
func (b overJSONRPC) QueryFailsAsAWhole(t *testing.T) {
	b.mine(t, 1)
	b.query(t, txmanager.ChainQuery{})
	all := txmanager.ChainQuery{Account: true, ToBlock: 1}
	for _, method := range []string{"eth_getBlockByNumber", "eth_getTransactionCount", "eth_getBalance", "eth_getCode", "eth_maxPriorityFeePerGas"} {
		b.proxy.Set(FaultyMethod(method, NodeError("header not found")))
		b.wantNoObservation(t, "an error of "+method, all)
		b.proxy.Set(FaultyMethod(method, Result(nil)))
		b.wantNoObservation(t, "null for "+method, all)
	}
	b.proxy.Set(Fault{Drop: true})
	b.wantNoObservation(t, "a dropped answer", all)
	for _, status := range []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusFound} {
		b.proxy.Set(Fault{Status: status})
		b.wantNoObservation(t, "an HTTP status", all)
	}
	b.proxy.Set(Fault{})
	b.query(t, all)
}

// A node of another chain is never trusted, and is queried again next time.
func (b contract) WrongChain(t *testing.T) {
	b.connector = b.connect(t, b.ChainID+1, patience)
	b.submitter = b.onChain(b.ChainID + 1)
	b.wantNoObservation(t, "a node of another chain", txmanager.ChainQuery{})
	wantClass(t, b.send(t, b.tx(t, 0, nil))[0], txmanager.SendUnknown)

	if b.proxy == nil {
		return
	}
	b.proxy.Set(FaultyMethod("eth_chainId", Result(hexutil.EncodeUint64(b.ChainID+1))))
	b.query(t, txmanager.ChainQuery{})

	b.submitter = b.onChain(b.ChainID)
	b.wantNoObservation(t, "a submitter of another chain", txmanager.ChainQuery{Account: true})
}

// A tagged block that contradicts the head's chain is absent.
func (b contract) TagsAreInTheHeadsChain(t *testing.T) {
	b.mine(t, 3)
	for _, tag := range []string{"safe", "finalized"} {
		q := txmanager.ChainQuery{Finality: tag, ToBlock: 100}
		v := b.query(t, q)
		if v.Tagged == nil {
			t.Fatalf("%s: got none, want a block", tag)
		}
		inChain := slices.ContainsFunc(v.Headers, func(h txmanager.Header) bool { return h.Hash == v.Tagged.Hash })
		check.Equal(t, tag+": a block of the head's chain", inChain, true)
		if b.proxy == nil {
			continue
		}
		for name, response := range map[string]map[string]any{
			"null":         {"result": nil},
			"an error":     NodeError("finalized block not found"),
			"another fork": {"result": map[string]any{"number": "0x2", "hash": absentHash, "parentHash": absentHash, "timestamp": "0x1"}},
			"the future":   {"result": map[string]any{"number": "0xffff", "hash": absentHash, "parentHash": absentHash, "timestamp": "0x1"}},
		} {
			b.proxy.Set(answering(blockOf(tag), response))
			check.Equal(t, fmt.Sprintf("%s answered with %s", tag, name), b.query(t, q).Tagged, nil)
		}
		b.proxy.Set(Fault{})
	}
	b.wantNoObservation(t, "an unknown tag", txmanager.ChainQuery{Finality: "latest"})
}

// A query that began on one chain and ended on another fails. One during which a block was added does not.
func (b overJSONRPC) ChainChanged(t *testing.T) {
	b.mine(t, 3)
	for name, c := range map[string]struct {
		distort func(block map[string]any) // the head at the beginning
		fails   bool
	}{
		"another chain":      {func(b map[string]any) { b["hash"] = absentHash }, true},
		"a higher block":     {func(b map[string]any) { b["hash"], b["number"] = absentHash, "0xffff" }, true},
		"the parent":         {func(b map[string]any) { b["hash"], b["number"] = b["parentHash"], lower(b["number"]) }, false},
		"the parent, higher": {func(b map[string]any) { b["hash"] = b["parentHash"] }, true},
	} {
		b.proxy.Set(changing(nth(1, blockOf("latest")), c.distort))
		_, err := b.connector.Query(t.Context(), txmanager.ChainQuery{Submitter: b.submitter, Account: true})
		if (err != nil) != c.fails {
			t.Errorf("query that began on %s: got %v, want an error: %t", name, err, c.fails)
		}
	}
}

// lower is the number before a hex number.
func lower(hex any) string {
	n, _ := new(big.Int).SetString(hex.(string), 0)
	return "0x" + n.Sub(n, big.NewInt(1)).Text(16)
}
