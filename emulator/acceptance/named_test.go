package acceptance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// payByHand sends wei at nonce n with the first submitter's key.
func (b bench) payByHand(t *testing.T, n uint64, to common.Address, wei int64) (hash string) {
	t.Helper()
	return b.byHand(t, firstAccount, b.Payment(n, to, wei, 1))
}

// received returns an address' balance on the chain, in wei.
func (b bench) received(t *testing.T, to common.Address) int64 {
	t.Helper()
	return must(b.Node.BalanceAt(b.ctx, to, nil))(t).Int64()
}

func orderTo(s txmanager.Submitter, requestID string, to common.Address, wei int64) map[string]any {
	body := transfer(s, requestID)
	body["payload"] = map[string]any{"to": strings.ToLower(to.Hex()), "value": fmt.Sprint(wei)}
	return body
}

// A request that a release names never runs again, whichever nonce it is named for. Its caller gets
// the true result from cancel, from its request, and from a repeated post.
func TestANamedRequestIsExecutedOnceAndItsCallerHearsIt(t *testing.T) {
	t.Parallel()
	windows(t, []int{1, 8}, func(t *testing.T, window int) {
		b := setup(t, stack.Options{Window: window})
		s := b.Submitters()[0]
		to := func(i int) common.Address { return common.Address{0xca, 0xfe, byte(i + 1)} }
		b.Chain.StopMining()
		var ids []string
		for i := range 12 {
			_, id := b.post(t, orderTo(s, fmt.Sprintf("named-%d", i), to(i), 1000))
			ids = append(ids, id)
		}
		b.await(t, s, txmanager.Tracking, window)
		b.Chain.DropPool()
		b.payByHand(t, 0, to(11), 1000) // named-11, by an operator
		b.payByHand(t, 1, to(20), 777)  // a request that was lost with the database
		b.Chain.StartMining()
		incident := b.inProtect(t, s)
		b.mine(t, 70)
		body := map[string]any{"incident": incident, "mode": "resync", "count": 2, "reason": "paid by hand"}
		b.refusedRelease(t, "without the name", s, body, "named-11")
		body["requests"] = map[string]string{"0": "named-11", "1": "lost", "9": "named-3"}
		b.refusedRelease(t, "a name that would do nothing", s, body, "nonce 9")
		for what, requests := range map[string]map[string]string{
			"another case": {"0": "Named-11", "1": "lost"}, "a space": {"0": "named-11 ", "1": "lost"}, "none in another case": {"0": "None", "1": "lost"},
			"one nonce spelled twice": {"0": "named-11", "00": "none", "1": "lost"}, "one request twice": {"0": "named-11", "1": "named-11"},
		} {
			body["requests"] = requests
			b.refusedRelease(t, what, s, body, `"field":"requests`)
		}
		b.wantPendingCancel(t, "cancel of what the chain has, before an operator has said so", ids[11])
		body["requests"] = map[string]string{"1": "lost"}
		body["others"] = "matching"
		var released client.ReleaseReport
		for status, text := range b.releasesAtOnce(t, s, body) { // one of the two is granted
			if status == http.StatusOK && json.Unmarshal([]byte(text), &released) == nil || status == http.StatusConflict {
				continue
			}
			t.Fatalf("resync: got %d %s, want 200 once and 409 once", status, text)
		}
		if len(released.Named) != 2 || released.Named[0].RequestID != "named-11" || released.Named[0].Effect != "RECORDED" {
			t.Fatalf("resync: got %+v, want what each name did", released)
		}
		b.wantRecorded(t, ids[11])
		asLost, hash := orderTo(s, "lost", to(20), 777), released.Named[1].TxHash
		b.wantLostIsAnswered(t, stack.CallerAccount, asLost, hash, "CONFIRMED", "RECORDED")
		b.wantLostIsHidden(t, stack.SchedulerAccount, asLost, hash)
		must(b.DB.Exec(b.ctx, `update submitter set callers = array_append(callers, $2) where submitter = $1`, s, stack.SchedulerAccount))(t)
		b.wantLostIsAnswered(t, stack.SchedulerAccount, asLost, hash, "CONFIRMED", "RECORDED")
		b.allEnded(t)
		for i := range 12 {
			want := int64(1000)
			if i < min(window, 2) { // held a nonce that was lost
				want = 0
			}
			equal(t, fmt.Sprint("wei on the chain of named-", i), b.received(t, to(i)), want)
		}
		equal(t, "wei on the chain of the lost request", b.received(t, to(20)), 777)
	})
}

// releasesAtOnce makes the same release twice concurrently, and returns the answers by status.
func (b bench) releasesAtOnce(t *testing.T, s txmanager.Submitter, body map[string]any) map[int]string {
	t.Helper()
	answers := make(chan answered)
	for range 2 {
		go func() {
			status, text := b.askRelease(t, s, "", body)
			answers <- answered{status: status, text: text}
		}()
	}
	byStatus := make(map[int]string)
	for range 2 {
		a := <-answers
		byStatus[a.status] = a.text
	}
	if len(byStatus) != 2 || byStatus[http.StatusOK] == "" {
		t.Errorf("two releases at once: got %v, want one granted and one refused", byStatus)
	}
	return byStatus
}

// wantRecorded checks the answers about a named request against its end.
func (b bench) wantRecorded(t *testing.T, id string) {
	t.Helper()
	b.call(t, stack.CallerAccount, http.MethodPost, "/api/v1/tx/"+id+"/cancel", nil).want("cancel of what was named", http.StatusOK, `"EXECUTED"`, `"RECORDED"`)
	var r client.Tx
	a := b.call(t, stack.CallerAccount, http.MethodGet, "/api/v1/tx/"+id, nil)
	a.decode(&r)
	if r.State != client.Confirmed || r.SubState != "RECORDED" || r.Receipt == nil || r.TxHash == "" || r.Receipt.TxHash != r.TxHash {
		t.Errorf("what was named: got %s, want CONFIRMED/RECORDED with hash and receipt", a.text)
	}
}

// wantLostIsAnswered checks the answers about a lost and named request to an account that may post for the
// submitter: a repeated post, by request, and by txId.
func (b bench) wantLostIsAnswered(t *testing.T, account string, intent map[string]any, hash, state, sub string) {
	t.Helper()
	what := fmt.Sprintf("%v, asked for by %s", intent["requestId"], account)
	posted := b.call(t, account, http.MethodPost, "/api/v1/tx", intent)
	posted.want(what+", posted again", http.StatusConflict, `"REQUEST_RECORDED"`, hash)
	a := b.byRequest(t, account, intent)
	var r record
	if json.Unmarshal([]byte(a.text), &r) != nil || a.status != http.StatusOK || r.State != state || text(r.SubState) != sub || text(r.TxHash) != hash {
		t.Fatalf("%s: got %d %s, %v; want 200, %s/%s with %s", what, a.status, a.text, a.err, state, sub, hash)
	}
	says(t, what+", posted again", posted.text, r.TxID)
	b.call(t, account, http.MethodPost, "/api/v1/tx/"+r.TxID+"/cancel", nil).want(what+", cancelled", http.StatusOK, `"EXECUTED"`)
}

func (b bench) byRequest(t *testing.T, account string, intent map[string]any) answered {
	return b.call(t, account, http.MethodGet, fmt.Sprintf("/api/v1/tx/by-request?submitter=%s&requestId=%s", intent["submitter"], intent["requestId"]), nil)
}

// wantLostIsHidden checks the answers to an account that may not post for the submitter. They must
// equal those about a request that never existed.
func (b bench) wantLostIsHidden(t *testing.T, account string, intent map[string]any, hash string) {
	t.Helper()
	posted := b.call(t, account, http.MethodPost, "/api/v1/tx", intent)
	if posted.want("posted by an account that may not", http.StatusNotFound, `"UNKNOWN_SUBMITTER"`); strings.Contains(posted.text, hash) {
		t.Errorf("posted by an account that may not: got %s, want it without %s", posted.text, hash)
	}
	b.byRequest(t, account, intent).want("asked for by an account that may not", http.StatusNotFound)
}

// More than a hundred nonces are lost. They are shown page by page. The release evaluates all of them,
// by the given names or by matching, and no named request runs a second time.
func TestManyLostNoncesAreShownAndMatched(t *testing.T) {
	t.Parallel()
	for name, window := range map[string]int{"window 1, by hand": 1, "window 1, matching": 1, "window 8, by hand": 8, "window 8, matching": 8} {
		parallel(t, name, func(t *testing.T) {
			b := setup(t, stack.Options{Window: window, Submitters: 1})
			s := b.Submitters()[0]
			const lost, here = 105, 30
			to := func(i int) common.Address { return common.Address{0xda, 0xda, byte(i + 1)} }
			order := func(i int) map[string]any { return orderTo(s, fmt.Sprintf("many-%d", i), to(i), 1000) }
			b.Chain.StopMining()
			ids := make(map[int]string)
			for i := lost - 1; i >= lost-here; i-- { // the last ones are requests here too, accepted before PROTECT
				_, ids[i] = b.post(t, order(i))
			}
			b.await(t, s, txmanager.Tracking, window)
			b.Chain.DropPool()
			for i := range lost {
				b.payByHand(t, uint64(i), to(i), 1000)
			}
			b.Chain.StartMining()
			incident := b.inProtect(t, s)
			b.until(t, "not all is mined", func() bool { return len(b.mined(t, s)) == lost })
			b.mine(t, 70)
			body := map[string]any{"incident": incident, "mode": "resync", "count": lost, "reason": "paid by hand"}
			b.refusedRelease(t, "nothing named", s, body, "nonce 75:", "many-104", "nonce 104:")
			shown, final := b.lostNonces(t, s)
			if len(shown) != lost || final != lost {
				t.Fatalf("pages: got %d nonces and a final count of %d, want %d", len(shown), final, lost)
			}
			requests := map[string]string{}
			for i, one := range shown {
				if one.Nonce != uint64(i) || one.Succeeded == nil || !*one.Succeeded || (len(one.Intents) == 1) != (ids[i] != "") || ids[i] != "" && one.Intents[0].TxID != ids[i] {
					t.Errorf("shown in place %d: got %+v, want the nonce, its success and the intent %q", i, one, ids[i])
				}
				requests[fmt.Sprint(i)] = fmt.Sprintf("many-%d", i)
			}
			named := lost
			if body["requests"] = requests; strings.HasSuffix(name, "by hand") {
				delete(requests, "90") // one is omitted
				b.refusedRelease(t, "one of them forgotten", s, body, "nonce 90:", "many-90")
				requests["90"] = "many-90"
			} else {
				delete(body, "requests")
				body["others"], named = "matching", here
			}
			before := b.decidedUpon(t)
			tried := b.released(t, s, "?dryRun=true", body)
			same(t, "what the trial left", b.decidedUpon(t), before)
			done := b.released(t, s, "", body)
			if tried.DryRun = false; !cmp.Equal(tried, done) || len(done.Named) != named || len(done.Displaced) != lost || done.NextNonce != lost {
				t.Errorf("the release: got %d named, %d lost and next nonce %d, want %d, %d and %d, and the trial to say the same:\n%s",
					len(done.Named), len(done.Displaced), done.NextNonce, named, lost, lost, cmp.Diff(tried, done))
			}
			b.allEnded(t)
			b.post(t, orderTo(s, "after", common.Address{0xaf}, 1000))
			b.allEnded(t)
			b.mine(t, 5)
			for i := range lost {
				equal(t, fmt.Sprint("wei on the chain by nonce ", i), b.received(t, to(i)), 1000)
			}
			for _, i := range []int{75, 90, 104} {
				b.wantRecorded(t, ids[i])
				b.wantPost(t, fmt.Sprintf("many-%d, posted again", i), order(i), http.StatusOK, ids[i])
			}
			if named == lost {
				for _, i := range []int{0, 50, 74} {
					b.wantLostIsAnswered(t, stack.CallerAccount, order(i), shown[i].ConsumingTx.Hash, "CONFIRMED", "RECORDED")
				}
			}
		})
	}
}
