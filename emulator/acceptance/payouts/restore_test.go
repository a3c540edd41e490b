package payouts

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/transfer"
)

// unowned is still, without the judgement at its end: a restore leaves a halt, which is
// none of a house in which nothing went wrong.
func unowned(t *testing.T) *house {
	t.Helper()
	h, err := build(t.Context(), stack.Options{SweepEvery: -1, CheckEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.close(); err != nil {
			t.Errorf("stop: %v", err)
		}
		if t.Failed() {
			h.log.show()
		}
	})
	return h
}

// onServer runs statements beside the database, whose name replaces LIVE.
func (h *house) onServer(t *testing.T, statements ...string) {
	t.Helper()
	u, err := url.Parse(h.Database)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Trim(u.Path, "/")
	u.Path = "/postgres"
	conn, err := pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), strings.ReplaceAll(s, "LIVE", name)); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

const (
	closeDoor = `alter database "LIVE" allow_connections false`
	openDoor  = `alter database "LIVE" allow_connections true`
	sendAway  = `select pg_terminate_backend(pid) from pg_stat_activity where datname = 'LIVE' and pid <> pg_backend_pid()`
)

func (h *house) backup(t *testing.T) {
	t.Helper()
	h.onServer(t, closeDoor, sendAway, `create database "LIVE_bk" template "LIVE"`, openDoor)
	h.DB.Reset()
}

// restore puts the backup in the database's place, and says that it is a copy.
func (h *house) restore(t *testing.T) {
	t.Helper()
	h.onServer(t, closeDoor, sendAway, `alter database "LIVE" rename to "LIVE_lost"`, `alter database "LIVE_bk" rename to "LIVE"`, openDoor)
	if err := migrations.Distrust(t.Context(), h.Database, "restored"); err != nil {
		t.Fatal(err)
	}
	h.DB.Reset()
}

// operator calls, and wants 200 or 204.
func (h *house) operator(t *testing.T, method, path string, body any) (got map[string]any) {
	t.Helper()
	var status int
	var text []byte
	poll(t, method+" "+path, func() (met bool) {
		var err error
		status, text, err = h.Call(t.Context(), stack.OperatorAccount, method, path, body)
		return err == nil && (status == http.StatusOK || status == http.StatusNoContent)
	})
	_ = json.Unmarshal(text, &got)
	return got
}

// taken is what consumed the nonces that the copy does not know, by the receiver.
func (h *house) taken(t *testing.T) map[string]struct{ nonce, hash string } {
	t.Helper()
	all := map[string]struct{ nonce, hash string }{}
	list, _ := h.operator(t, http.MethodGet, "/admin/v1/submitters/"+string(h.Payer)+"/lost", nil)["nonces"].([]any)
	for _, one := range list {
		entry := one.(map[string]any)
		taker, ok := entry["taker"].(map[string]any)
		if !ok {
			t.Fatalf("lost: got %v, want a transaction for each nonce", entry)
		}
		all[fmt.Sprint(taker["to"])] = struct{ nonce, hash string }{fmt.Sprint(entry["nonce"]), fmt.Sprint(taker["hash"])}
	}
	return all
}

// A backup has payouts in every state; after it all of them are paid. The copy is
// restored by docs/runbooks/restore.md. Each payout ends COMMITTED by the transaction
// that paid it, and nothing is paid or debited twice; one that was not paid is given
// back once nothing that was lost can be mined.
func TestRestorePaysNothingTwice(t *testing.T) {
	t.Parallel()
	h := unowned(t)
	h.pauseSteps(t)
	paidBefore := h.unjudged(t, h.coin(), 1_000_000)
	before := paidBefore.accepted(400_001)
	paidBefore.awaitManaged(before, "CONFIRMED")
	paidBefore.stepTo(before, happy)
	mined := h.unjudged(t, h.coin(), 1_000_000)
	minedID := mined.accepted(400_001)
	mined.awaitManaged(minedID, "CONFIRMED")

	points := []string{"transfer.beginning", "transfer.withdraw.calling", "payout.posting", "payout.posted"}
	left := map[string]*user{}
	for _, point := range points {
		u := h.unjudged(t, h.coin(), 1_000_000)
		p, hit := u.armed(t, point, crash.Kill)
		posts(u, p.Addr())
		died(t, p, hit, point)
		left[point] = u
	}
	never := h.unjudged(t, h.coin(), 1_000_000)
	neverID := never.withdrawn(transfer.TargetPending)
	h.backup(t)

	for _, point := range points {
		u := left[point]
		u.stepTo(u.only().ReqID, happy)
		u.wantMoney("after the backup: "+point, 599_999, 400_001, 1)
	}
	never.want("given up after the backup", never.resolve(neverID), http.StatusOK, "ROLLED_BACK", "")
	h.restore(t)

	poll(t, "PROTECT is open", func() bool {
		_ = h.RunSweep(t.Context())
		var open bool
		return h.DB.QueryRow(t.Context(), `select exists (select from protect_episode where submitter = $1 and closed_at is null)`, h.Payer).Scan(&open) == nil && open
	})
	episode := h.inProtect(t)
	h.operator(t, http.MethodPost, "/admin/v1/authority/accept", map[string]any{"reason": "reconciled by the runbook"})
	if err := h.Chain.Mine(70); err != nil {
		t.Fatal(err)
	}
	poll(t, "the foreign transactions are read", func() bool {
		_ = h.RunSweep(t.Context())
		var n int
		return h.DB.QueryRow(t.Context(), `select count(*) from foreign_transaction where submitter = $1`, h.Payer).Scan(&n) == nil && n == len(points)
	})
	taken := h.taken(t)
	for _, point := range []string{"transfer.withdraw.calling", "payout.posting"} { // named one by one
		u := left[point]
		reqID := u.only().ReqID
		poll(t, point+": in doubt", func() bool {
			u.task(reqID)
			return u.load(reqID).State == transfer.TargetPending
		})
		h.operator(t, http.MethodPost, "/admin/v1/transfers/"+reqID+"/payout-statement",
			map[string]any{"paid": true, "tx_hash": taken[u.address.String()].hash, "reason": "found on the chain"})
		u.steps(reqID)
	}
	requests := map[string]string{}
	for _, u := range left { // and all of them in the release
		requests[taken[u.address.String()].nonce] = u.only().ReqID
	}
	h.operator(t, http.MethodPost, "/admin/v1/submitters/"+string(h.Payer)+"/release",
		map[string]any{"episode": episode, "mode": "resync", "count": 2 + len(points), "reason": "restored", "requests": requests})
	for _, u := range left {
		u.steps(u.only().ReqID)
	}
	mined.steps(minedID)
	for point, u := range left {
		u.wantMoney(point, 599_999, 400_001, 1)
	}
	mined.wantMoney("mined before the backup", 599_999, 400_001, 1)
	paidBefore.wantMoney("paid before the backup", 599_999, 400_001, 1)

	h.notPaid(t, never, neverID)
	report := h.operator(t, http.MethodPost, "/admin/v1/conservation/check", map[string]any{"full": true})
	if report["result"] != "ok" {
		t.Errorf("conservation: got %v, want ok", report)
	}
}

// steps delivers step tasks until the payout has ended.
func (u *user) steps(reqID string) (x transfer.Transfer) {
	u.t.Helper()
	poll(u.t, "payout "+reqID+" has ended", func() (ended bool) {
		u.task(reqID)
		x = u.load(reqID)
		return x.State.Terminal()
	})
	return x
}

// notPaid states that a payout was not paid: it takes effect once every nonce that lost
// bytes can have is consumed, and not before.
func (h *house) notPaid(t *testing.T, u *user, reqID string) {
	t.Helper()
	u.task(reqID)
	u.held(reqID, transfer.TargetPending, 599_999, "")
	u.want("given up in doubt", u.resolve(reqID), http.StatusOK, "TARGET_PENDING", "")
	h.operator(t, http.MethodPost, "/admin/v1/transfers/"+reqID+"/payout-statement",
		map[string]any{"paid": false, "then": "refund", "max_window": 8, "reason": "no transaction pays this address"})
	u.task(reqID)
	u.held(reqID, transfer.TargetPending, 599_999, "")
	var halt int
	if err := h.DB.QueryRow(t.Context(), `select halt_id from transfer_halt where resumed_at is null`).Scan(&halt); err != nil {
		t.Fatal(err)
	}
	h.operator(t, http.MethodPost, fmt.Sprintf("/admin/v1/halts/%d/resume", halt), map[string]any{"reason": "reconciled"})
	others := h.unjudged(t, h.coin(), 1_000_000)
	for range 8 { // consume the nonces
		others.awaitManaged(others.accepted(1), "CONFIRMED")
	}
	if x := u.steps(reqID); x.State != transfer.RolledBack {
		t.Errorf("not paid: got %s, want ROLLED_BACK", x.State)
	}
	u.wantMoney("given back", 1_000_000, 0, 0)
	for _, x := range others.all() {
		others.steps(x.ReqID)
	}
}
