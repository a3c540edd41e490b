package browser

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
)

// behind is how many intents wait behind the oldest one: more than are compared one by one, and more than a page has.
const behind = 5_500

// crowd posts intents that wait behind the first of the queue.
func (h *deployment) crowd(t *testing.T, submitter string, n int) {
	t.Helper()
	const most = 500 // of one call
	for posted := 0; posted < n; {
		all := make([]client.Intent, min(most, n-posted))
		for i := range all {
			all[i] = client.Intent{Submitter: submitter, RequestID: fmt.Sprint("salary-", posted+i), Payload: client.Payload{To: receiver, Value: "1"}}
		}
		for _, r := range must(h.caller.CreateTxBatch(t.Context(), all))(t) {
			if r.TxID == "" {
				t.Fatalf("an intent of the queue: got %+v, want it accepted", r)
			}
		}
		posted += len(all)
	}
}

// The owner of an account pays the oldest request of a queue of thousands by hand. The page of the incident finds that
// request. A release with the evidence of before a second payment is refused, and so is that of a second tab after the first
// tab's. Nothing else of the queue ends.
func TestThePaidRequestIsFoundInALongQueue(t *testing.T) {
	t.Parallel()
	h := setup(t)
	ctx, s := t.Context(), h.crowded()
	oldest := must(h.caller.CreateTx(ctx, client.Intent{
		Submitter: s, RequestID: "rent-of-march", Payload: client.Payload{To: receiver, Value: fmt.Sprint(byHand), MaxFeePerGas: "1"}, // no block takes it
	}))(t)
	h.crowd(t, s, behind)
	h.payByHand(t, crowd, 0)
	poll(t, "PROTECT", func() bool { return must(h.operator.Submitter(ctx, s))(t).Protect != nil })
	must(h.operator.SuspendSubmitter(ctx, s, "the queue waits until it is known what was paid"))(t)
	h.finalize(t, s, 1)

	first, second := h.as(t, stack.OperatorAccount), h.as(t, stack.OperatorAccount)
	path := submitterPath(s) + "/protect"
	first.open(path)
	first.shows("protect", "rent-of-march", "0.25 ether")
	first.followPath("/console/tx/" + oldest.TxID)
	first.shows("transaction", "rent-of-march", string(client.Queued))
	for _, b := range []*tab{first, second} {
		b.open(path + "/release")
		b.choose("request-0", "id:rent-of-march")
		b.fill("reason", "the owner paid the rent by hand")
	}
	h.payByHand(t, crowd, 1)
	h.finalize(t, s, 2)
	const try = "Show what would happen (changes nothing)"
	first.presses(try, http.StatusBadRequest)
	first.shows("release", "finalized", "nonce 1")
	if count, reason := first.value("count"), first.value("reason"); count != "2" || reason == "" {
		t.Errorf("the form after the refusal: got the count %s and the reason %q, want the count of now and what was entered", count, reason)
	}
	first.choose("request-1", "none")
	first.press(try)
	first.shows("release", "What the release would do", "rent-of-march")
	first.fill("confirm", s[len(s)-6:])
	first.press("Release: accept the loss")
	first.shows("protect", "No incident is open")
	second.presses(try, http.StatusConflict)
	second.shows("release", "No incident is open")

	ended := must(h.operator.Tx(ctx, oldest.TxID))(t)
	if ended.State != client.Confirmed || ended.SubState != "RECORDED" {
		t.Errorf("the request that was paid by hand: got %s %s, want CONFIRMED RECORDED", ended.State, ended.SubState)
	}
	if after := must(h.operator.Submitter(ctx, s))(t); after.Queued != behind || after.Protect != nil {
		t.Errorf("after the release: got %d in the queue, %+v; want %d and no incident", after.Queued, after.Protect, behind)
	}
}

// finalize waits until the chain has so many transactions of the submitter in finalized blocks.
func (h *deployment) finalize(t *testing.T, s string, count uint64) {
	t.Helper()
	poll(t, "the payment is in a block", func() bool {
		now := must(h.operator.Submitter(t.Context(), s))(t).Chain
		return now != nil && now.Latest != nil && *now.Latest >= count
	})
	check(t, h.Chain.Mine(70))
	poll(t, "the payment is final", func() bool {
		lost, err := h.operator.Lost(t.Context(), s, "")
		return err == nil && lost.FinalCount != nil && *lost.FinalCount >= count
	})
}
