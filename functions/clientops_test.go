package functions_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// With the client an operator accepts a restored database, and decides about held intents and foreign
// transactions.
func TestClientAcceptsARestoreAndDecides(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.Register(t, shopAccount, 1)
	h.registerPayer()
	shop, ann := h.clientOf(h.callerToken("shop")), h.clientOf(h.callerToken("ann"))
	held, err := shop.CreateTx(t.Context(), intentOf("held"))
	check.OK(t)(err)
	if err := ann.AcceptDatabase(t.Context(), "not restored"); client.CodeOf(err) != "TOO_LATE" {
		t.Errorf("accept what is the accepted database: got %v, want TOO_LATE", err)
	}
	h.run(`update database_identity set timeline_id = timeline_id + 1`)
	if err := shop.AcceptDatabase(t.Context(), "by a caller"); client.CodeOf(err) != "FORBIDDEN" {
		t.Errorf("accept by a caller: got %v, want FORBIDDEN", err)
	}
	if err := ann.AcceptDatabase(t.Context(), "the backup of the 21st"); err != nil {
		t.Fatalf("accept: %v", err)
	}
	if tx, err := shop.Tx(t.Context(), held.TxID); err != nil || tx.SubState != "HELD" {
		t.Errorf("after it: got %+v, %v; want it held", tx, err)
	}
	names, err := collect(ann.ListSubmitters(t.Context(), client.SubmitterQuery{}), func(s client.Submitter) string {
		return fmt.Sprint(s.Submitter, " ", s.Held, " ", s.Protect != nil && s.Protect.Incident > 0)
	})
	if want := shopAccount + " 1 true"; err != nil || !strings.Contains(names, want) || !strings.Contains(names, payer) {
		t.Errorf("submitters: got %s, %v; want %s, and the payer", names, err, want)
	}
	if _, err := ann.DecideTx(t.Context(), held.TxID, "replace", "it has no nonce"); client.CodeOf(err) != "TOO_LATE" {
		t.Errorf("decide about what has no nonce: got %v, want TOO_LATE", err)
	}
	if report, err := ann.ProceedAll(t.Context(), shopAccount, held.TxID, "the log of the 21st"); err != nil || report.Submitter != shopAccount || report.Proceeded != 1 {
		t.Errorf("proceed: got %+v, %v; want 1", report, err)
	}
}

// With the client an operator lists foreign transactions, 100 a page, matches one and writes the
// others off.
func TestClientOfForeignTransactions(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.Register(t, shopAccount, 1)
	to, err := eip155.ParseAddress(paidTo)
	check.OK(t)(err)
	digest := txmanager.ConsumingTx{To: &to, ValueWei: "1"}.CallDigest()
	const all = 103
	h.run(`insert into foreign_transaction (submitter, nonce, incident, tx_hash, block_number, block_hash, to_address, value_wei, call_digest, succeeded, receipt, node)
		select $1, n, 1, '0x' || lpad(to_hex(n + 1), 64, '0'), 7, '0x' || lpad(to_hex(n + 1), 64, '0'), lower($2), 1, $3, true, '{}', 'node' from generate_series(0, $4::int - 1) n`,
		shopAccount, paidTo, digest[:], all)
	h.run(`insert into foreign_hold (submitter, nonce, call_digest) select submitter, nonce, call_digest from foreign_transaction`)
	shop, ann := h.clientOf(h.callerToken("shop")), h.clientOf(h.callerToken("ann"))
	held, err := shop.CreateTx(t.Context(), intentOf("repeated"))
	check.OK(t)(err)
	var listed []client.OpenForeign
	for one, err := range ann.ListForeign(t.Context(), shopAccount, 0) {
		check.OK(t)(err)
		listed = append(listed, one)
	}
	if len(listed) != all || listed[0].TxID != held.TxID || listed[0].RequestID != "repeated" || listed[1].TxID != "" || listed[all-1].Nonce != all-1 {
		t.Fatalf("list: got %d, the first two %+v; want %d, and the intent held for the first", len(listed), listed[:min(2, len(listed))], all)
	}
	var later []uint64
	for one, err := range ann.ListForeign(t.Context(), shopAccount, all-2) {
		check.OK(t)(err)
		later = append(later, one.Nonce)
	}
	check.Same(t, "from the last but one", later, []uint64{all - 2, all - 1})
	if got, err := ann.MatchForeign(t.Context(), shopAccount, 0, held.TxID, "the same call"); err != nil || got.State != client.Confirmed || got.SubState != "RECORDED" {
		t.Errorf("match: got %+v, %v; want CONFIRMED/RECORDED", got, err)
	}
	if got, err := ann.WriteOffForeign(t.Context(), shopAccount, new(uint64(1)), nil, "by hand"); err != nil || got.WrittenOff != 1 || got.Remaining != all-2 {
		t.Errorf("write one off: got %+v, %v; want 1 of them, and %d left", got, err, all-2)
	}
	if _, err := ann.WriteOffForeign(t.Context(), shopAccount, new(uint64(1)), nil, "again"); client.CodeOf(err) != "TOO_LATE" {
		t.Errorf("write it off again: got %v, want TOO_LATE", err)
	}
	for _, c := range []struct {
		through         uint64
		writes, remains int
	}{{3, 2, all - 4}, {3, 0, all - 4}, {all - 2, all - 5, 1}, {all, 1, 0}} {
		if got, err := ann.WriteOffForeign(t.Context(), shopAccount, nil, &c.through, "all that were seen"); err != nil || got.WrittenOff != c.writes || got.Remaining != c.remains {
			t.Errorf("write off up to %d: got %+v, %v; want %d of them, and %d left", c.through, got, err, c.writes, c.remains)
		}
	}
}

// With the client an operator reads where money is, resolves a waiting transfer, cancels one that has
// not begun, and ends a halt.
func TestClientResolvesTransfers(t *testing.T) {
	t.Parallel()
	h := impatient(t)
	ann := h.clientOf(h.callerToken("ann"))
	waiting := h.stored("cancelled")
	if got, err := ann.CancelTransfer(t.Context(), waiting, "not wanted"); err != nil || got.State != client.TransferFailed || got.Reason != "CANCELLED" {
		t.Errorf("cancel: got %+v, %v; want FAILED/CANCELLED", got, err)
	}
	reqID := h.pending()
	if _, err := ann.CancelTransfer(t.Context(), reqID, "not wanted"); client.CodeOf(err) != "TOO_LATE" {
		t.Errorf("cancel what has begun: got %v, want TOO_LATE", err)
	}
	why, err := ann.WhyTransfer(t.Context(), reqID)
	if err != nil || why.ReqID != reqID || why.State != client.TransferTargetPending || why.UserID != alice || why.NextTryAt == nil || len(why.History) == 0 || !strings.Contains(why.WouldUnblock, "deposit") {
		t.Errorf("why: got %+v, %v; want what it waits for", why, err)
	}
	if _, err := ann.ResolveTransfer(t.Context(), reqID, client.Resolve{Op: "refund", Reason: "r"}); client.CodeOf(err) != "NOTHING_TO_RESOLVE" {
		t.Errorf("resolve another operation: got %v, want NOTHING_TO_RESOLVE", err)
	}
	h.signal(syscall.SIGCONT)
	if got, err := ann.ResolveTransfer(t.Context(), reqID, client.Resolve{Op: "deposit", Reason: "the core is back"}); err != nil || got.ReqID != reqID {
		t.Errorf("resolve: got %+v, %v; want the transfer", got, err)
	}
	if why, err = ann.WhyTransfer(t.Context(), reqID); err != nil || len(why.Resolutions) == 0 || why.Resolutions[0].Op != "deposit" || why.Resolutions[0].By == "" {
		t.Errorf("why, resolved: got %+v, %v; want who resolved it", why, err)
	}

	h.run(`update balances_tb set available = available - 0.000001 where user_id = $1 and asset_id = 1`, bob)
	if report, err := ann.CheckConservation(t.Context(), true); err != nil || report.Result != "violated" || report.Fresh != 1 || len(report.Found) != 1 || len(report.Halted) != 1 {
		t.Fatalf("a stolen unit: got %+v, %v; want one finding, and a halt", report, err)
	}
	shown, err := ann.Conservation(t.Context())
	if err != nil || shown.LastCheck == nil || shown.OpenHalts != 1 || len(shown.Halts) != 1 || len(shown.Halts[0].Evidence) == 0 || shown.LastCheck.Found[0].ID == 0 {
		t.Fatalf("conservation: got %+v, %v; want the finding and the halt", shown, err)
	}
	if err := ann.ResumeHalt(t.Context(), shown.Halts[0].ID, false, "looked"); err != nil {
		t.Errorf("resume: %v", err)
	}
	if err := ann.ResumeHalt(t.Context(), shown.Halts[0].ID, false, "looked"); client.CodeOf(err) != "TOO_LATE" {
		t.Errorf("resume again: got %v, want TOO_LATE", err)
	}
}
