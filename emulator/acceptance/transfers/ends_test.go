package transfers

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

// A transfer older than the core's horizon ends without help while the core has forgotten nothing. The
// cases are its deposit, the refund of its withdrawal, and its withdrawal.
func TestOlderThanTheHorizonEnds(t *testing.T) {
	t.Parallel()
	const horizon = 3 * time.Second
	h := own(t, stack.Options{Processes: 1, SweepEvery: time.Second, Core: stack.CoreOptions{Horizon: horizon}})
	u, v, w := h.newUser(t, 100, 100), h.newUser(t, 100, 100), h.newUser(t, 100, 100)
	var mend []func()
	for op, x := range map[transfer.Op]*user{transfer.Deposit: u, transfer.Refund: v, transfer.Withdraw: w} {
		mend = append(mend, h.Core.Proxy.Arm(ubsproxy.Fault{Kind: ubsproxy.Unavailable, Op: op, UserID: x.ID}))
	}
	v.status(funding, "DISABLED")
	a, b, c := u.post(funding, spot, "0.00004"), v.post(spot, funding, "0.00004"), w.post(spot, funding, "0.00004")
	h.Await(t, "all are older than the horizon", `select not exists (select from transfers_tb where created_at > clock_timestamp() - $1::interval)`, horizon+time.Second)
	for _, m := range mend {
		m()
	}
	for _, x := range []struct {
		*user
		reqID   string
		end     transfer.State
		in, out int64
	}{{u, a.ReqID, transfer.Committed, 60, 140}, {v, b.ReqID, transfer.RolledBack, 100, 100}, {w, c.ReqID, transfer.Committed, 140, 60}} {
		x.AwaitState(x.reqID, x.end)
		x.wantUnits("older than the horizon", x.in, x.out)
	}
}

// forgotten returns a deployment whose core forgets quickly.
func forgotten(t *testing.T) *deployment {
	return own(t, stack.Options{Processes: 1, SweepEvery: time.Second, Core: stack.CoreOptions{Horizon: time.Second, SnapshotEvery: 4, ForgetCalls: true}})
}

// forget fills the core's journal until the core has forgotten the transfer and its operations. It
// calls the transfer's own operation directly only if that was done before.
func (u *user) forget(reqID string, op transfer.Op, done bool) {
	u.T.Helper()
	call := u.Load(reqID).Call()
	n := 0
	probe := func() transfer.Outcome {
		n++
		other := call
		other.ReqID, other.UserID = fmt.Sprint("probe-", reqID, n), 1<<40
		return u.Core.Ledger().Withdraw(u.Ctx, other)
	}
	switch {
	case done:
		probe = func() transfer.Outcome { return ask(u, u.Core.Ledger(), op, call) }
	case op == transfer.Refund:
		probe = func() transfer.Outcome { return u.Core.Ledger().Withdraw(u.Ctx, call) }
	}
	filler := *u
	filler.ID = 1 << 41
	poll(u.T, "the core has forgotten", func() bool {
		filler.deposit(spot, 1)
		return errors.Is(u.Core.Ledger().Objection(probe()), transfer.ErrForgotten)
	})
}

// wantForgotten requires that the transfer learns this, that a resolve without outcome changes
// nothing, and that the operator gets instructions.
func (u *user) wantForgotten(reqID string, op transfer.Op) {
	u.T.Helper()
	poll(u.T, "the core says BEYOND_HORIZON", func() bool { return strings.Contains(u.Load(reqID).LastUnknown, `"BEYOND_HORIZON"`) })
	before := u.Load(reqID).State
	u.resolve(reqID, http.StatusConflict, "BEYOND_HORIZON", map[string]any{"op": op, "reason": "stuck"})
	_, text := u.operator(u.T, http.MethodGet, "/admin/v1/transfers/"+reqID+"/why", nil)
	says(u.T, "why", string(text), "has forgotten", "BEYOND_HORIZON", `\"outcome\"`)
	equal(u.T, "resolved without outcome", u.Load(reqID).State, before)
}

func (u *user) resolve(reqID string, status int, code string, body map[string]any) {
	u.T.Helper()
	got, text := u.operator(u.T, http.MethodPost, "/admin/v1/transfers/"+reqID+"/resolve", body)
	var problem struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(text, &problem)
	if got != status || problem.Code != code {
		u.T.Errorf("resolve %v: got %d %s, want %d %s", body, got, text, status, code)
	}
}

// lineOf returns the line of the core's journal with the operation, or 0.
func (u *user) lineOf(reqID string, op transfer.Op) uint64 {
	u.T.Helper()
	for after := uint64(0); ; {
		lines, last, err := u.Core.Ledger().Journal(u.Ctx, after, 1000)
		check(u.T, err)
		for _, line := range lines {
			if after = line.Seq; line.ReqID == reqID && line.Op == op {
				return line.Seq
			}
		}
		if after >= last {
			return 0
		}
	}
}

// A call that the core can have forgotten ends by an operator's statement, proved by the core's
// journal or by a check of conservation. Duplicates get the same answer for ever, and the money is
// where the statement says.
func TestForgottenEndsByAProvedWord(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		kind    ubsproxy.Kind
		op      transfer.Op
		from    transfer.AccountType
		applied bool
		byLine  bool
		end     transfer.State
		in, out int64
	}{
		"a deposit that never came":       {ubsproxy.Unavailable, transfer.Deposit, funding, false, false, transfer.RolledBack, 100, -1}, // no account
		"a deposit whose answer was lost": {ubsproxy.LoseAnswer, transfer.Deposit, funding, true, true, transfer.Committed, 60, 40},
		"the same, by a check":            {ubsproxy.LoseAnswer, transfer.Deposit, funding, true, false, transfer.Committed, 60, 40},
		"a withdrawal that never came":    {ubsproxy.Unavailable, transfer.Withdraw, spot, false, false, transfer.Failed, 100, 100},
		"a withdrawal, its answer lost":   {ubsproxy.LoseAnswer, transfer.Withdraw, spot, true, true, transfer.Committed, 140, 60},
		"a refund that never came":        {ubsproxy.Unavailable, transfer.Refund, spot, false, false, transfer.RolledBack, 100, 100},
		"a refund whose answer was lost":  {ubsproxy.LoseAnswer, transfer.Refund, spot, true, false, transfer.RolledBack, 100, 100},
	} {
		t.Run(name, func(t *testing.T) {
			h := forgotten(t)
			inSpot := uint64(0)
			if x.from == spot {
				inSpot = 100
			}
			u := h.newUser(t, 100, inSpot)
			mend := h.Core.Proxy.Arm(ubsproxy.Fault{Kind: x.kind, Op: x.op, UserID: u.ID})
			if x.op == transfer.Refund {
				u.status(funding, "DISABLED")
			}
			a := u.post(x.from, other(x.from), "0.00004")
			if x.kind == ubsproxy.LoseAnswer {
				poll(t, "done", func() bool { return u.lineOf(a.ReqID, x.op) > 0 })
			}
			u.resolve(a.ReqID, http.StatusConflict, "NOT_FORGOTTEN", map[string]any{"op": x.op, "reason": "too soon", "outcome": "not_applied"})
			u.forget(a.ReqID, x.op, x.kind == ubsproxy.LoseAnswer)
			mend()
			u.wantForgotten(a.ReqID, x.op)
			word := transfer.OperatorStatement{Applied: x.applied}
			u.resolve(a.ReqID, http.StatusConflict, "EVIDENCE_DIFFERS", map[string]any{"op": x.op, "reason": "a mistake", "outcome": transfer.OperatorStatement{Applied: !x.applied}.Outcome()})
			body := map[string]any{"op": x.op, "reason": "reconciled", "outcome": word.Outcome()}
			if x.byLine {
				body["line"] = u.lineOf(a.ReqID, x.op) + 1
				u.resolve(a.ReqID, http.StatusConflict, "EVIDENCE_DIFFERS", body)
				body["line"] = u.lineOf(a.ReqID, x.op)
			}
			u.resolve(a.ReqID, http.StatusOK, "", body)
			u.AwaitState(a.ReqID, x.end)
			u.wantUnits(name, x.in, x.out)
			row := u.Load(a.ReqID)
			for range 3 {
				got := ask(u, h.Core.Ledger(), x.op, row.Call())
				if want := x.applied || x.op == transfer.Refund; (got.Verdict == transfer.Success) != want || got.Verdict == transfer.Unknown {
					t.Errorf("a duplicate: got %+v, want applied %t", got, want)
				}
			}
			u.wantUnits("after duplicates", x.in, x.out)
			h.healthy(t)
		})
	}
}

// A core balance that differs from the sum of its journal is adjusted in either direction by the core
// itself. The full check is then ok, also after a restart of the core.
func TestAnAccountOfTheCoreIsAdjusted(t *testing.T) {
	t.Parallel()
	h := own(t, stack.Options{Processes: 1, Core: stack.CoreOptions{SnapshotEvery: 3}})
	operator := must(h.Client(stack.OperatorAccount))(t)
	u := h.unverified(t) // the checkers ignore this user's money
	u.deposit(funding, 100)
	u.deposit(spot, 100)
	for n, x := range []struct {
		move, op string
		by       int64
		units    int64
	}{{"journal", "journal_debit", -7, 93}, {"balance", "balance_credit", -5, 93}, {"journal", "journal_credit", 2, 95}, {"balance", "balance_debit", 3, 95}} {
		u.corrupt(x.by)
		if report := must(operator.CheckConservation(t.Context(), false))(t); report.Result != "violated" {
			t.Fatalf("%d: got %+v, want violated", n, report)
		}
		shown := must(operator.Conservation(t.Context()))(t)
		if shown.LastCheck == nil || len(shown.LastCheck.Found) != 1 || shown.LastCheck.Found[0].Side != "SPOT" {
			t.Fatalf("%d: got %+v, want one finding of SPOT", n, shown.LastCheck)
		}
		path := fmt.Sprintf("/admin/v1/conservation/findings/%d/adjust", shown.LastCheck.Found[0].ID)
		u.deposit(spot, 1)
		if status, text := h.operator(t, http.MethodPost, path, map[string]any{"move": x.move, "reason": "r"}); status != http.StatusConflict || !strings.Contains(string(text), "ACCOUNT_MOVED") {
			t.Errorf("%d, moved since: got %d %s, want ACCOUNT_MOVED", n, status, text)
		}
		if err := h.Core.Ledger().OutsideWithdrawal(u.Ctx, transfer.Call{ReqID: fmt.Sprint("back-", n), UserID: u.ID, AssetID: usdt.ID, Units: 1, CreatedAt: time.Now()}); err.Verdict != transfer.Success {
			t.Fatal(err)
		}
		status, text := h.operator(t, http.MethodPost, path, map[string]any{"move": x.move, "reason": "r"})
		if status != http.StatusOK || !strings.Contains(string(text), `"`+x.op+`"`) {
			t.Fatalf("%d: got %d %s, want 200 with %s", n, status, text, x.op)
		}
		if status, text := h.operator(t, http.MethodPost, path, map[string]any{"move": x.move, "reason": "r"}); status != http.StatusConflict || !strings.Contains(string(text), "TOO_LATE") {
			t.Errorf("%d, again: got %d %s, want TOO_LATE", n, status, text)
		}
		for range 2 {
			h.healthy(t)
			u.wantUnits("adjusted", 100, x.units)
			h.coreAgain(t)
		}
	}
	h.resumeAll(t)
}

func (h *deployment) resumeAll(t *testing.T) {
	t.Helper()
	must(h.DB.Exec(t.Context(), `update transfer_halt set resumed_at = clock_timestamp(), resumed_by = 'o', resume_reason = 'r' where resumed_at is null`))(t)
}

// corrupt changes the user's balance in the core's newest snapshot, without a journal line.
func (u *user) corrupt(by int64) {
	u.T.Helper()
	_, last, err := u.Core.Ledger().Journal(u.Ctx, 1<<40, 1)
	check(u.T, err)
	var names []string
	poll(u.T, "a snapshot has the account", func() bool {
		u.deposit(spot, 1)
		call := transfer.Call{ReqID: fmt.Sprint("even-", time.Now().UnixNano()), UserID: u.ID, AssetID: usdt.ID, Units: 1, CreatedAt: time.Now()}
		u.Core.Ledger().OutsideWithdrawal(u.Ctx, call)
		names, _ = filepath.Glob(filepath.Join(u.Core.Folder(), "snapshot-*.img"))
		slices.Sort(names)
		return len(names) > 0 && filepath.Base(names[len(names)-1]) >= fmt.Sprintf("snapshot-%020d.img", last)
	})
	check(u.T, u.Core.Kill())
	names, _ = filepath.Glob(filepath.Join(u.Core.Folder(), "snapshot-*.img")) // a newer one can have been written
	slices.Sort(names)
	newest := names[len(names)-1]
	image, err := os.ReadFile(newest)
	if err == nil {
		err = os.WriteFile(newest, corruptedImage(u.T, image, u.ID, by), 0o600)
	}
	if err == nil {
		err = u.Core.Start(u.Ctx)
	}
	check(u.T, err)
}

// corruptedImage returns a snapshot in which the user's only account holds more, with a valid
// checksum: see [book.Image.Write].
func corruptedImage(t *testing.T, image []byte, user, by int64) []byte {
	t.Helper()
	const magic, sum = 8, 4
	at := magic
	number := func() uint64 {
		n, length := binary.Uvarint(image[at:])
		at += length
		return n
	}
	for range 3 {
		number() // line, time, floor
	}
	for n := number(); n > 0; n-- {
		number()
		number()
	}
	for n := number(); n > 0; n-- {
		id, _ := number(), number()
		from := at
		units := number()
		to := at
		number()
		if int64(id) == user {
			spoiled := binary.AppendUvarint(slices.Clone(image[:from]), uint64(int64(units)+by))
			spoiled = append(spoiled, image[to:len(image)-sum]...)
			return binary.LittleEndian.AppendUint32(spoiled, crc32.Checksum(spoiled, crc32.MakeTable(crc32.Castagnoli)))
		}
	}
	t.Fatalf("no account of user %d in the snapshot", user)
	return nil
}
