package payouts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/chainscan"
	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// reconnected waits until the test's own connections, which were cut, are new.
func (h *deployment) reconnected(t *testing.T) {
	t.Helper()
	well := 0
	poll(t, "the test's own connections are new", func() bool {
		if _, err := h.Transfers.Load(t.Context(), "none"); errors.Is(err, transfer.ErrNotFound) || errors.Is(err, transfer.ErrForeign) {
			well++
		} else {
			well = 0
		}
		return well > 20
	})
}

// everyQueue pauses or resumes the queues of all functions.
func (h *deployment) everyQueue(t *testing.T, run bool) {
	t.Helper()
	h.queues(t, run, txmanager.KindAdvance, txmanager.KindReceipt, txmanager.KindConfirm, txmanager.KindResubmit, "transfer")
}

// asks makes one call.
func (h *deployment) asks(account, method, path string, body any) (status int, got map[string]any, err error) {
	status, text, err := h.Call(context.Background(), account, method, path, body)
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, &got)
	}
	return status, got, err
}

// intends posts an ordinary intent of wei as its caller until it is answered, and returns its txId.
func (h *deployment) intends(t *testing.T, s txmanager.Submitter, requestID string, wei int) (txID string) {
	t.Helper()
	poll(t, requestID+" is accepted", func() bool {
		status, got, err := h.asks(stack.CallerAccount, http.MethodPost, "/api/v1/tx", map[string]any{
			"submitter": string(s), "requestId": requestID,
			"payload": map[string]any{"to": ordinary, "value": fmt.Sprint(wei)},
		})
		txID = fmt.Sprint(got["txId"])
		return err == nil && (status == http.StatusAccepted || status == http.StatusOK)
	})
	return txID
}

// ordinary is the recipient of the ordinary intents.
const ordinary = "0x00000000000000000000000000000000000cafe0"

// awaitTx sweeps until the ordinary intent is in the state.
func (h *deployment) awaitTx(t *testing.T, txID, want string) {
	t.Helper()
	var last string
	poll(t, txID+" is "+want, func() bool {
		_ = h.RunSweep(t.Context())
		err := h.DB.QueryRow(t.Context(), `select concat_ws('/', state, case when held and state = 'QUEUED' then 'HELD' else sub_state end) from managed_tx where tx_id = $1`, txID).Scan(&last)
		return err == nil && strings.HasPrefix(last, want)
	})
}

// swept sweeps until the condition is met.
func (h *deployment) swept(t *testing.T, what string, met func() bool) {
	t.Helper()
	poll(t, what, func() bool {
		_ = h.RunSweep(t.Context())
		return met()
	})
}

// diedAt returns a payout whose process died at the point.
func (u *user) diedAt(point string) (reqID string) {
	u.T.Helper()
	p, hit := u.armed(u.T, point, crash.Kill)
	posts(u, p.Addr())
	died(u.T, p, hit, point)
	return u.only().ReqID
}

// chainPays reads the account's payments from the chain's blocks, as recipient and wei, without those to
// itself.
func (h *deployment) chainPays(t *testing.T, s txmanager.Submitter) (all []string) {
	t.Helper()
	for _, tx := range must(chainscan.Read(t.Context(), h.Chain.URL(), nil))(t).From(s.Address()) {
		if to := tx.To(); to != nil && eip155.Address(*to) != tx.From && tx.Succeeded() {
			all = append(all, strings.ToLower(to.Hex())+" "+tx.Value().String())
		}
	}
	slices.Sort(all)
	return all
}

// committed returns the payments that the COMMITTED transfers should have.
func (h *deployment) committed(t *testing.T) []string {
	t.Helper()
	all := acceptancetest.Rows[string](t, h.Deployment, `select payout_address || ' ' || payout_base_units from transfers_tb where transfer_type = 3 and state = 40`)
	slices.Sort(all)
	return all
}

// restoration holds the state of a backup and the later events.
type restoration struct {
	*deployment
	t           *testing.T
	busy, still txmanager.Submitter // ordinary: intents of the first ran after the backup, those of the second did not
	users       []*user
	ended       map[*user]transfer.State // the required end of each user's payout

	init, source, target, queued, flying, never, refunding, lost *user

	ran, cancelled, letGo, bulk, wanted string // txIds of ordinary intents
	stolen                              string // id of an address that an operator removes after the backup
}

func (r *restoration) user(ends transfer.State) *user {
	u := r.unverified(r.t, r.coin(), 1_000_000)
	r.users, r.ended[u] = append(r.users, u), ends
	return u
}

const refunded, paidOut = transfer.RolledBack, transfer.Committed

// before makes intents, and payouts in every state.
func (r *restoration) before() {
	t := r.t
	r.pauseSteps(t)
	over := r.user(paidOut)
	reqID := over.accepted(400_001)
	over.awaitManaged(reqID, "CONFIRMED")
	over.stepTo(reqID, happy)
	mined := r.user(paidOut)
	mined.awaitManaged(mined.accepted(400_001), "CONFIRMED")
	r.init, r.source, r.target, r.lost = r.user(paidOut), r.user(paidOut), r.user(paidOut), r.user(paidOut)
	r.init.diedAt("transfer.beginning")
	r.source.diedAt("transfer.withdraw.calling")
	r.target.diedAt("payout.posting")
	r.never = r.user(refunded)
	r.never.withdrawn(transfer.TargetPending)
	r.refunding = r.user(refunded)
	givenUp := r.refunding.withdrawn(transfer.TargetPending)
	p, hit := r.armed(t, "transfer.refund.calling", crash.Kill)
	_, _ = r.refunding.resolveAt("http://"+p.Addr(), givenUp)
	died(t, p, hit, "transfer.refund.calling")

	r.Chain.StopMining()
	r.flying = r.user(paidOut)
	r.flying.awaitManaged(r.flying.accepted(400_001), "TRACKING/PENDING")
	r.everyQueue(t, false)
	r.queued = r.user(paidOut)
	r.queued.diedAt("payout.posted")
	r.stolen = r.lists(r.lost)
	r.ran, r.cancelled = r.intends(t, r.busy, "ran", 101), r.intends(t, r.busy, "cancelled", 102)
	r.letGo, r.bulk, r.wanted = r.intends(t, r.still, "let go", 103), r.intends(t, r.still, "in bulk", 104), r.intends(t, r.still, "wanted", 105)
	for _, u := range []*user{r.init, r.source, r.target, r.queued, r.flying} {
		x := u.only()
		t.Logf("the backup has payout %s in %s, and its transaction in %q", x.ReqID, x.State, u.managed(x.ReqID))
	}
}

// lists adds the user's address to the list of allowed payout addresses.
func (r *restoration) lists(u *user) (addressID string) {
	r.t.Helper()
	body := map[string]any{"asset": u.asset.Name, "address": u.address.String()}
	status, text, err := r.CallAsUser(u.Ctx, u.ID, http.MethodPost, "/api/v1/payout_address", body)
	var added struct {
		AddressID json.Number `json:"address_id"`
	}
	if err == nil {
		err = json.Unmarshal(text, &added)
	}
	if err != nil || status != http.StatusCreated {
		r.t.Fatalf("list an address: got %d %s, %v", status, text, err)
	}
	return added.AddressID.String()
}

const (
	removeAddress  = "POST /admin/v1/users/{user_id}/payout_addresses/{address_id}/remove"
	blockAddresses = "POST /admin/v1/users/{user_id}/payout_addresses/block"
)

// policy is the policy that an operator sets after the backup.
var policy = map[string]any{"maxValue": "1000", "reason": "a limit set after the backup"}

// after makes the changes that the backup does not contain.
func (r *restoration) after() {
	t := r.t
	operator := func(method, path string, body any) {
		t.Helper()
		poll(t, method+" "+path, func() bool {
			status, _, err := r.asks(stack.OperatorAccount, method, path, body)
			return err == nil && status < 300
		})
	}
	poll(t, "the intent is cancelled", func() bool {
		_, got, err := r.asks(stack.CallerAccount, http.MethodPost, "/api/v1/tx/"+r.cancelled+"/cancel", nil)
		return err == nil && got["outcome"] == "CANCELLED"
	})
	operator(http.MethodPost, "/admin/v1/submitters/"+string(r.still)+"/suspend", map[string]any{"reason": "it is not used for now"})
	operator(http.MethodPut, "/admin/v1/submitters/"+string(r.busy)+"/policy", policy)
	ofUser := fmt.Sprintf("/admin/v1/users/%d/payout_addresses/", r.lost.ID)
	operator(http.MethodPost, ofUser+r.stolen+"/remove", map[string]any{"reason": "the user's token was stolen"})
	operator(http.MethodPost, ofUser+"block", map[string]any{"reason": "the user's token was stolen"})
	r.Chain.StartMining()
	r.everyQueue(t, true)
	r.pauseSteps(t)
	for _, u := range []*user{r.init, r.source, r.target, r.queued, r.flying} {
		u.stepTo(u.only().ReqID, happy)
	}
	id := r.never.only().ReqID
	r.never.wantGivenUp("given up after the backup", r.never.resolve(id))
	r.never.stepTo(id, rollback)
	r.refunding.stepTo(r.refunding.only().ReqID, rollback)
	a := r.lost.pay(400_001, "cid", "c")
	r.lost.Want("after the backup", a, http.StatusAccepted, "PENDING", "")
	r.lost.stepTo(a.ReqID, happy)
	for i, name := range []string{"lost and repeated", "lost for good"} {
		r.awaitTx(t, r.intends(t, r.busy, name, 106+i), "CONFIRMED")
	}
	r.awaitTx(t, r.ran, "CONFIRMED")
}

// A backup has payouts in every state and ordinary intents, and all of them continue after the
// restore. The copy is put into use by docs/runbooks/restore.md, with every query and call of the page
// and nothing else. Each transfer ends. The chain's payments and the COMMITTED transfers match one to
// one, and every user has the right amount.
func TestRestoreFollowedToTheLetterPaysNothingTwice(t *testing.T) {
	t.Parallel()
	h := unchecked(t, stack.Options{Submitters: 2})
	r := &restoration{deployment: h, t: t, busy: h.Submitters()[0], still: h.Submitters()[1], ended: map[*user]transfer.State{}}
	r.before()
	h.BackUp(t)
	h.reconnected(t)
	r.after()

	p := h.follow(t, "restore")
	r.step1to3(p)
	r.step4(p)
	p.call("POST /admin/v1/database/accept", map[string]any{"reason": "reconciled by the runbook"})
	r.step6(p)
	r.step7(p)
	r.heldIntents(p)
	r.step8(p)
	p.followed()
	r.verified()
}

// step1to3 stops the queues, replaces the database by the backup, and checks that this is noticed.
func (r *restoration) step1to3(p *page) {
	t := r.t
	r.everyQueue(t, false)
	r.PutBack(t)
	r.reconnected(t)
	same(t, "a copy in the same cluster, which is not noticed: accepted", column(p.query(1), "accepted"), []string{"true"})
	check(t, migrations.Distrust(t.Context(), r.Database, "restored to 09:00 after the disk was lost"))
	same(t, "after distrust: accepted", column(p.query(1), "accepted"), []string{"false"})
	r.everyQueue(t, true)
	r.swept(t, "every submitter is in PROTECT", func() bool {
		rows := p.query(2)
		return len(rows) == 3 && !slices.Contains(column(rows, "incident"), "<nil>")
	})
	all, _ := p.call("GET /admin/v1/submitters", nil)["submitters"].([]any)
	if shown := fmt.Sprint(all); len(all) != 3 || strings.Count(shown, "protect:map[") != 3 {
		t.Errorf("submitters: got %s, want three in PROTECT", shown)
	}
}

// lostOf returns the page of lost nonces, once each shows the transaction that consumed it. Those
// blocks are older than the counts that the node keeps, and are read in steps.
func (r *restoration) lostOf(p *page, s txmanager.Submitter) (all []client.LostNonce, finalCount uint64) {
	p.t.Helper()
	r.swept(p.t, "what consumed each nonce is read", func() bool {
		all, finalCount = r.shownLost(p, s)
		return !slices.ContainsFunc(all, func(n client.LostNonce) bool { return n.ConsumingTx == nil })
	})
	return all, finalCount
}

func (r *restoration) shownLost(p *page, s txmanager.Submitter) (all []client.LostNonce, finalCount uint64) {
	p.t.Helper()
	got := p.call("GET /admin/v1/submitters/{submitter}/lost", nil, string(s))
	text, err := json.Marshal(got)
	var answer client.LostNonces
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil || answer.FinalCount == nil || *answer.FinalCount != answer.ChainCount {
		p.t.Fatalf("lost: got %s, %v; want a final count that is the chain's", text, err)
	}
	return answer.Nonces, *answer.FinalCount
}

// step4 finds the requests that ran, once nothing is pending any more.
func (r *restoration) step4(p *page) {
	t := r.t
	if err := r.Chain.Mine(600); err != nil { // as many blocks as a restore takes
		t.Fatal(err)
	}
	if all, _ := r.lostOf(p, r.Payer); len(all) != 5 { // INIT, SOURCE_PENDING, TARGET_PENDING, queued, and the lost payout
		t.Errorf("lost nonces of the payer: got %+v, want 5", all)
	}
	if got := column(p.query(3), "request_id"); len(got) != 6 || !slices.Contains(got, "ran") || !slices.Contains(got, r.queued.only().ReqID) {
		t.Errorf("what waits here: got %v, want five intents and a payout", got)
	}
}

// step6 repeats the operators' acts from the log.
func (r *restoration) step6(p *page) {
	t := r.t
	if got := p.call("POST /admin/v1/tx/{txId}/cancel", map[string]any{"reason": "as before"}, r.cancelled); got["outcome"] != "CANCELLED" {
		t.Errorf("cancel again: got %v, want CANCELLED", got)
	}
	for path, body := range map[string]any{"PUT policy": policy, "POST suspend": map[string]any{"reason": "as before"}} {
		method, what, _ := strings.Cut(path, " ")
		s := map[string]txmanager.Submitter{"policy": r.busy, "suspend": r.still}[what]
		status, got, err := r.asks(stack.OperatorAccount, method, "/admin/v1/submitters/"+string(s)+"/"+what, body)
		if err != nil || status >= 300 {
			t.Fatalf("%s: got %d %v, %v", path, status, got, err)
		}
	}
	// The address is on the list again, and so are the users who may add one.
	p.call(removeAddress, map[string]any{"reason": "as before"}, fmt.Sprint(r.lost.ID), r.stolen)
	p.call(blockAddresses, map[string]any{"reason": "as before"}, fmt.Sprint(r.lost.ID))
	if got := column(p.query(4), "held"); !slices.Equal(got, []string{"1", "1", "3"}) && len(got) != 3 {
		t.Errorf("held: got %v, want 1 of the first, 3 of the second and 1 of the payer", got)
	}
}

const releases = "POST /admin/v1/submitters/{submitter}/release"

// step7 releases each submitter with the requests found, by nonce.
func (r *restoration) step7(p *page) {
	t := r.t
	incident := func(s txmanager.Submitter) (n int) {
		check(t, r.DB.QueryRow(t.Context(), `select incident from protect_incident where submitter = $1 and closed_at is null`, s).Scan(&n))
		return n
	}
	if status, got := p.tries(releases, map[string]any{"incident": incident(r.Payer), "mode": "resume", "reason": "in haste"}, string(r.Payer)); status != http.StatusBadRequest || got["field"] != "mode" {
		t.Fatalf("a payer by resume: got %d %v, want 400: its lost payments may still be mined", status, got)
	}
	lost, count := r.lostOf(p, r.Payer)
	requests := map[string]string{}
	for _, n := range lost { // two by name; "others" finds the rest
		for _, u := range []*user{r.init, r.queued} {
			if n.ConsumingTx.To == u.address.String() {
				requests[fmt.Sprint(n.Nonce)] = u.only().ReqID
			}
		}
	}
	body := map[string]any{"incident": incident(r.Payer), "mode": "resync", "count": count, "reason": "restored", "requests": requests}
	if status, got := p.tries(releases, body, string(r.Payer)); status != http.StatusBadRequest || got["field"] != "requests" {
		t.Fatalf("a release that says nothing of two payments: got %d %v, want 400", status, got)
	}
	body["others"] = "matching"
	got := p.call(releases, body, string(r.Payer))
	if filling, ok := got["filling"].(map[string]any); !ok || filling["from"] != float64(count) || filling["below"] != float64(count+8) {
		t.Errorf("release of the payer: got %v, want the nonces from %d to %d filled", got, count, count+7)
	}
	lost, count = r.lostOf(p, r.busy)
	requests = map[string]string{}
	for _, n := range lost {
		requests[fmt.Sprint(n.Nonce)] = map[string]string{"101": "ran"}[n.ConsumingTx.Value]
		if requests[fmt.Sprint(n.Nonce)] == "" {
			requests[fmt.Sprint(n.Nonce)] = txmanager.NoRequest
		}
	}
	p.call(releases, map[string]any{"incident": incident(r.busy), "mode": "resync", "count": count, "reason": "restored", "requests": requests}, string(r.busy))
	r.awaitTx(t, r.ran, "CONFIRMED/RECORDED") // named by its value
	p.call(releases, map[string]any{"incident": incident(r.still), "mode": "resync", "count": 0, "fill": 8, "reason": "restored, nothing ran"}, string(r.still))
}

// heldIntents lets intents continue that may, and matches those that have run.
func (r *restoration) heldIntents(p *page) {
	t := r.t
	status, got, err := r.asks(stack.OperatorAccount, http.MethodPost, "/admin/v1/submitters/"+string(r.still)+"/resume", map[string]any{"reason": "it is used again"})
	if err != nil || status >= 300 {
		t.Fatalf("resume: got %d %v, %v", status, got, err)
	}
	equal(t, "posted again", r.intends(t, r.still, "wanted", 105), r.wanted)
	p.call("POST /admin/v1/tx/{txId}/proceed", map[string]any{"reason": "its caller was asked"}, r.letGo)
	for left := any(1.0); left != 0.0; {
		left = p.call("POST /admin/v1/submitters/{submitter}/proceed", map[string]any{"through": r.bulk, "reason": "their callers were asked"}, string(r.still))["remaining"]
	}
	for _, id := range []string{r.wanted, r.letGo, r.bulk} {
		r.awaitTx(t, id, "CONFIRMED")
	}
	repeated := r.intends(t, r.busy, "lost and repeated", 106)
	r.awaitTx(t, repeated, "QUEUED/HELD")
	r.matches(p, r.busy, repeated)
	r.awaitTx(t, repeated, "CONFIRMED/RECORDED")
	p.call("POST /admin/v1/submitters/{submitter}/foreign/write-off", map[string]any{"through": 1_000_000, "reason": "nobody has asked for it again"}, string(r.busy))

	a := r.lost.pay(400_001, "cid", "c") // the user repeats the lost payout
	r.lost.Want("repeated", a, http.StatusServiceUnavailable, "", "SYSTEM_ERROR")
}

// matches matches, as an operator, a held intent with the foreign transaction for which it is held.
func (r *restoration) matches(p *page, s txmanager.Submitter, txID string) (hash string) {
	r.t.Helper()
	list, _ := p.call("GET /admin/v1/submitters/{submitter}/foreign", nil, string(s))["foreign"].([]any)
	for _, one := range list {
		if f := one.(map[string]any); f["txId"] == txID {
			p.call("POST /admin/v1/submitters/{submitter}/foreign/match", map[string]any{"nonce": f["nonce"], "txId": txID, "reason": "the caller's log"}, string(s))
			return fmt.Sprint(f["txHash"])
		}
	}
	r.t.Fatalf("foreign transactions of %s: got %v, want one that %s is held for", s, list, txID)
	return ""
}

// step8 ends the transfers.
func (r *restoration) step8(p *page) {
	t := r.t
	same(t, "scopes of the halts", column(p.query(5), "scope"), []string{"all"})
	if n := len(p.query(6)); n == 0 {
		t.Error("what had begun: got none")
	}
	r.swept(t, "the payout that nobody has paid waits for a statement", func() bool {
		return r.never.Load(r.never.only().ReqID).State == transfer.TargetPending
	})
	if got := column(p.query(7), "req_id"); !slices.Contains(got, r.never.only().ReqID) {
		t.Errorf("in doubt: got %v, want the one that nobody has paid", got)
	}
	blocked := r.follow(t, "payout-blocked")
	id := r.never.only().ReqID
	blocked.call("POST /admin/v1/transfers/{req_id}/payout-statement", map[string]any{"paid": false, "then": "refund", "max_window": 8, "reason": "no transaction pays this address"}, id)
	r.swept(t, "everything but INIT has ended", func() bool {
		open := p.query(6)
		return len(open) == 0 || len(open) == 1 && open[0]["req_id"] == r.init.only().ReqID && open[0]["state"] == int16(transfer.Init)
	})
	status := r.never.Internal(strings.TrimPrefix(r.URLMap.InternalURL(), "http://"), stack.SchedulerAccount, "conservation", map[string]any{"full": true})
	if status >= 300 {
		t.Fatalf("the full check: got %d", status)
	}
	if found := fmt.Sprint(p.call("GET /admin/v1/conservation", nil)); strings.Count(found, "kind:") != 1 || !strings.Contains(found, "kind:PAYMENT_WITHOUT_TRANSFER") {
		t.Errorf("the check: got %s, want the one payment whose transfer was lost, and nothing else", found)
	}
	for _, act := range []string{"deposits", "withdrawals"} { // what the outside has done since the backup
		p.call("POST /admin/v1/accounts/{user}/{asset}/"+act, map[string]any{"id": "wire-7", "amount": "1.5", "reason": "the bank's statement"}, fmt.Sprint(r.lost.ID), stack.USDT.Name)
	}
	newest := 0
	for _, h := range p.query(5) {
		newest = max(newest, int(h["halt_id"].(int64)))
	}
	p.call("POST /admin/v1/halts/{id}/resume", map[string]any{"reason": "the user of the lost payout repeats it", "earlier": true}, fmt.Sprint(newest))

	a := r.lost.pay(400_001, "cid", "c") // the user repeats the lost and paid payout
	r.lost.Want("repeated", a, http.StatusAccepted, "PENDING", "")
	r.swept(t, "the repeated payout is held", func() bool {
		r.lost.Task(a.ReqID)
		var held bool
		return r.DB.QueryRow(t.Context(), `select held and held_for = 'CALL' from managed_tx where request_id = $1`, a.ReqID).Scan(&held) == nil && held
	})
	var txID string
	check(t, r.DB.QueryRow(t.Context(), `select tx_id::text from managed_tx where request_id = $1`, a.ReqID).Scan(&txID))
	r.matches(p, r.Payer, txID)
}

// verified checks the end against the chain.
func (r *restoration) verified() {
	t := r.t
	r.swept(t, "every transfer has ended", func() bool {
		return len(acceptancetest.Rows[string](t, r.Deployment, `select req_id from transfers_tb where open`)) == 0
	})
	for _, u := range r.users {
		x := u.only()
		equal(t, fmt.Sprintf("payout %s", x.ReqID), x.State, r.ended[u])
		u.wantOnce("payout "+x.ReqID, x.State)
	}
	same(t, "the chain's payments, and what the COMMITTED transfers stand for", r.chainPays(t, r.Payer), r.committed(t))
	want := map[txmanager.Submitter][]string{r.busy: {ordinary + " 101", ordinary + " 106", ordinary + " 107"}, r.still: {ordinary + " 103", ordinary + " 104", ordinary + " 105"}}
	for s, all := range want {
		same(t, fmt.Sprintf("ordinary intents of %s on the chain, each once", s), r.chainPays(t, s), all)
	}
	status, got, err := r.asks(stack.OperatorAccount, http.MethodPost, "/admin/v1/conservation/check", map[string]any{"full": true})
	if err != nil || status != http.StatusOK || got["result"] != "ok" {
		t.Errorf("conservation: got %d %v, %v; want ok", status, got, err)
	}
}
