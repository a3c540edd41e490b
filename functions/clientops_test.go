package functions_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// With the client an operator accepts a restored database, and decides about held intents and foreign
// transactions.
func TestClientAcceptsARestoreAndDecides(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	h.registerPayer()
	shop, ann := h.clientOf(h.callerToken("shop")), h.clientOf(h.callerToken("ann"))
	held := check.Value(shop.CreateTx(t.Context(), intentOf("held")))(t)
	refused(t, "accept what is the accepted database", "TOO_LATE")(ann.AcceptDatabase(t.Context(), "not restored"))
	h.run(`update database_identity set timeline_id = timeline_id + 1`)
	refused(t, "accept by a caller", "FORBIDDEN")(shop.AcceptDatabase(t.Context(), "by a caller"))
	check.OK(t)(ann.AcceptDatabase(t.Context(), "the backup of the 21st"))
	check.Equal(t, "after it", check.Value(shop.Tx(t.Context(), held.TxID))(t).SubState, "HELD")
	names, err := collect(ann.ListSubmitters(t.Context(), client.SubmitterQuery{}), func(s client.Submitter) string {
		return fmt.Sprint(s.Submitter, " ", s.Held, " ", s.Protect != nil && s.Protect.Incident > 0)
	})
	if want := shopAccount + " 1 true"; err != nil || !strings.Contains(names, want) || !strings.Contains(names, payer) {
		t.Errorf("submitters: got %s, %v; want %s, and the payer", names, err, want)
	}
	refused(t, "decide about what has no nonce", "TOO_LATE")(ann.DecideTx(t.Context(), held.TxID, "replace", "it has no nonce"))
	report := check.Value(ann.ProceedAll(t.Context(), shopAccount, held.TxID, "the log of the 21st"))(t)
	check.Equal(t, "proceed", fmt.Sprintln(report.Submitter, report.Proceeded), shopAccount+" 1\n")
}

// With the client an operator lists foreign transactions, 100 a page, matches one and writes the
// others off.
func TestClientOfForeignTransactions(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	const all = 103
	h.heldByForeign(all)
	shop, ann := h.clientOf(h.callerToken("shop")), h.clientOf(h.callerToken("ann"))
	held := check.Value(shop.CreateTx(t.Context(), intentOf("repeated")))(t)
	var listed []client.OpenForeign
	for one, err := range ann.ListForeign(t.Context(), shopAccount, 0) {
		check.OK(t)(err)
		listed = append(listed, one)
	}
	if len(listed) != all || listed[0].TxID != held.TxID || listed[0].RequestID != "repeated" || listed[1].TxID != "" || listed[all-1].Nonce != all-1 {
		t.Fatalf("list: got %d, the first two %+v; want %d, and the intent held for the first", len(listed), listed[:min(2, len(listed))], all)
	}
	later := check.Value(collect(ann.ListForeign(t.Context(), shopAccount, all-2), func(one client.OpenForeign) string { return fmt.Sprint(one.Nonce) }))(t)
	check.Equal(t, "from the last but one", later, fmt.Sprint(all-2, " ", all-1))
	matched := check.Value(ann.MatchForeign(t.Context(), shopAccount, 0, held.TxID, "the same call"))(t)
	check.Equal(t, "match", fmt.Sprintln(matched.State, matched.SubState), "CONFIRMED RECORDED\n")
	got := check.Value(ann.WriteOffForeign(t.Context(), shopAccount, new(uint64(1)), nil, "by hand"))(t)
	check.Equal(t, "write one off, and left", [2]int{got.WrittenOff, got.Remaining}, [2]int{1, all - 2})
	refused(t, "write it off again", "TOO_LATE")(ann.WriteOffForeign(t.Context(), shopAccount, new(uint64(1)), nil, "again"))
	for _, c := range []struct {
		through         uint64
		writes, remains int
	}{{3, 2, all - 4}, {3, 0, all - 4}, {all - 2, all - 5, 1}, {all, 1, 0}} {
		got = check.Value(ann.WriteOffForeign(t.Context(), shopAccount, nil, &c.through, "all that were seen"))(t)
		check.Equal(t, fmt.Sprint("written off up to ", c.through, ", and left"), [2]int{got.WrittenOff, got.Remaining}, [2]int{c.writes, c.remains})
	}
}

// With the client an operator reads where money is, resolves a waiting transfer, cancels one that has
// not begun, and ends a halt.
func TestClientResolvesTransfers(t *testing.T) {
	t.Parallel()
	h := impatient(t)
	ann := h.clientOf(h.callerToken("ann"))
	waiting := h.stored("cancelled")
	cancelled := check.Value(ann.CancelTransfer(t.Context(), waiting, "not wanted"))(t)
	check.Equal(t, "cancel", fmt.Sprintln(cancelled.State, cancelled.Reason), "FAILED CANCELLED\n")
	reqID := h.pending()
	refused(t, "cancel what has begun", "TOO_LATE")(ann.CancelTransfer(t.Context(), reqID, "not wanted"))
	why, err := ann.WhyTransfer(t.Context(), reqID)
	if err != nil || why.ReqID != reqID || why.State != client.TransferTargetPending || why.UserID != alice || why.NextTryAt == nil || len(why.History) == 0 || !strings.Contains(why.WouldUnblock, "deposit") {
		t.Errorf("why: got %+v, %v; want what it waits for", why, err)
	}
	refused(t, "resolve another operation", "NOTHING_TO_RESOLVE")(ann.ResolveTransfer(t.Context(), reqID, client.Resolve{Op: "refund", Reason: "r"}))
	h.signal(syscall.SIGCONT)
	check.Equal(t, "resolve", check.Value(ann.ResolveTransfer(t.Context(), reqID, client.Resolve{Op: "deposit", Reason: "the core is back"}))(t).ReqID, reqID)
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
	check.OK(t)(ann.ResumeHalt(t.Context(), shown.Halts[0].ID, false, "looked"))
	refused(t, "resume again", "TOO_LATE")(ann.ResumeHalt(t.Context(), shown.Halts[0].ID, false, "looked"))
}
