package acceptance

import (
	"net/http"
	"testing"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// diagnosis returns what account sees of the transaction's diagnosis; nil: nothing.
func (b bench) diagnosis(t *testing.T, account, txID string) *client.MempoolDiagnosis {
	t.Helper()
	var tx client.Tx
	b.call(t, account, http.MethodGet, "/api/v1/tx/"+txID, nil).decode(&tx)
	return tx.Mempool
}

// diagnosed waits until the transaction's record has this diagnosis.
func (b bench) diagnosed(t *testing.T, txID, signal, advice string) {
	t.Helper()
	var d *client.MempoolDiagnosis
	err := poll(b.ctx, func() bool {
		d = b.diagnosis(t, stack.OperatorAccount, txID)
		return d != nil && d.Signal == signal && d.Advice == advice
	})
	if err != nil {
		t.Fatalf("diagnosis: got %+v, want %s, %s: %v", d, signal, advice, err)
	}
}

// A waiting transaction is reported as in the pool, then as perhaps lost. When a foreign transaction
// takes its nonce in the pool, it is reported as perhaps replaced. Its state does not change, and its
// own version is mined in the end.
func TestMempoolDiagnosis(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: withSettings(quick, map[string]string{
		"FENCEPOST_MEMPOOL_DIAGNOSE_ENABLED": "true", "FENCEPOST_RESUBMIT_ENABLED": "false",
	})})
	s := b.Submitters()[0]
	id := b.inFlight(t, transfer(s, "waits"))
	b.diagnosed(t, id, "IN_MEMPOOL", "WAIT")
	b.Chain.DropPool()
	b.diagnosed(t, id, "PERHAPS_LOST", "RESUBMIT")
	node := must(rpc.DialContext(b.ctx, b.Chain.URL()))(t)
	defer node.Close()
	check(t, node.CallContext(b.ctx, nil, "eth_sendRawTransaction", hexutil.Encode(b.foreign(t, 0))))
	b.diagnosed(t, id, "PERHAPS_REPLACED", "WAIT")
	if d := b.diagnosis(t, stack.CallerAccount, id); d != nil {
		t.Errorf("its caller sees %+v, want nothing: it tells of nonces", d)
	}
	if _, r := b.ask(t, stack.CallerAccount, id); r.State != "TRACKING" || text(r.SubState) != "PENDING" || len(r.Receipt) > 4 {
		t.Errorf("got %s/%s, want TRACKING/PENDING as before", r.State, text(r.SubState))
	}
	b.Chain.DropPool()
	b.decide(t, id, "rebroadcast")
	b.Chain.StartMining()
	b.ends(t, map[txmanager.Submitter]int{s: 1})
}

// With the diagnosis off nothing is recorded, and the node gets no additional query.
func TestMempoolDiagnosisOff(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: quick})
	s := b.Submitters()[0]
	id := b.inFlight(t, transfer(s, "waits"))
	b.awaitCount(t, "its receipt was never asked for", 1, `select count(*) from managed_tx where last_receipt_check_at is not null`)
	if n := b.count(`select count(*) from managed_tx where last_mempool_diag is not null`); n != 0 || b.diagnosis(t, stack.OperatorAccount, id) != nil {
		t.Errorf("got %d diagnoses, want none", n)
	}
	b.Chain.StartMining()
	b.ends(t, map[txmanager.Submitter]int{s: 1})
}

// decide makes an operator's decision about the transaction.
func (b bench) decide(t *testing.T, txID, action string) {
	t.Helper()
	b.call(t, stack.OperatorAccount, http.MethodPost, "/admin/v1/tx/"+txID+"/decide", map[string]any{"action": action, "reason": "a test"}).need("decide", http.StatusAccepted)
}
