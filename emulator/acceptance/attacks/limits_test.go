package attacks

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// wei is an intent that sends so many wei.
func wei(s txmanager.Submitter, requestID, value string) map[string]any {
	return map[string]any{"submitter": s, "requestId": requestID, "payload": map[string]any{"to": receiver, "value": value}}
}

// twoCallers has the shop and mallory post for the submitter, and returns mallory's token.
func (h deployment) twoCallers(t *testing.T, s txmanager.Submitter, more ...string) (shop, mallory string) {
	t.Helper()
	callers := append([]string{"email:" + stack.CallerAccount, "sub:mallory"}, more...)
	must(h.operator(t).SetCallers(h.ctx, string(s), callers, nil, "a second caller"))(t)
	return h.token(t, stack.CallerAccount), h.mint(t, map[string]any{"sub": "mallory"})
}

func (h deployment) setPolicy(t *testing.T, s txmanager.Submitter, p client.Policy) {
	t.Helper()
	must(h.operator(t).SetPolicy(h.ctx, string(s), p, "a test"))(t)
}

// A caller that posts as much as it can uses up neither the queue nor the daily limit of another
// caller of the same submitter. Cancelling and posting again does not change that.
func TestACallerUsesUpItsOwnShareAlone(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Split: true, Processes: 1}) // each function with its own role
	h.Chain.StopMining()
	s := h.Submitters()[0]
	shop, mallory := h.twoCallers(t, s)
	h.setPolicy(t, s, client.Policy{MaxValuePerDay: "1000", MaxPerMinute: 1000, PerCaller: map[string]client.CallerLimits{
		"*": {MaxValue: "50", MaxValuePerDay: "100", MaxPerMinute: 30, MaxQueued: 5},
	}})
	said := map[string]int{}
	var queued []string
	for i := range 12 {
		a := h.call(t, mallory, http.MethodPost, "/api/v1/tx", wei(s, fmt.Sprint("m-", i), "0"))
		if said[a.String()]++; a.status == http.StatusAccepted {
			queued = append(queued, a.TxID)
		}
	}
	if n := said["202 "]; n < 5 || n > 6 || said["429 QUEUE_FULL"] != 12-n {
		t.Errorf("mallory fills the queue: got %v, want 5 in the queue, perhaps one with a nonce, and QUEUE_FULL", said)
	}
	h.call(t, shop, http.MethodPost, "/api/v1/tx", wei(s, "s-1", "50")).wantStatus(t, "the shop, beside a caller whose share of the queue is full", http.StatusAccepted)
	for _, id := range queued[1:] {
		h.call(t, mallory, http.MethodPost, "/api/v1/tx/"+id+"/cancel", nil)
	}
	for request, c := range map[string]struct{ value, want string }{
		"too much": {"51", "403 POLICY_REFUSED"}, "one": {"50", "202 "}, "two": {"50", "202 "},
	} {
		h.call(t, mallory, http.MethodPost, "/api/v1/tx", wei(s, request, c.value)).want(t, fmt.Sprintf("mallory, %s", request), c.want)
	}
	h.call(t, mallory, http.MethodPost, "/api/v1/tx", wei(s, "three", "1")).want(t, "mallory's day is used up", "429 DAILY_AMOUNT_EXCEEDED", "payload.value")
	h.call(t, shop, http.MethodPost, "/api/v1/tx", wei(s, "s-2", "50")).wantStatus(t, "the shop, beside a caller whose day is used up", http.StatusAccepted)
	a := h.call(t, shop, http.MethodPost, "/api/v1/tx", wei(s, "s-3", "0"))
	two := h.call(t, mallory, http.MethodPost, "/api/v1/tx", wei(s, "two", "50"))
	h.call(t, mallory, http.MethodPost, "/api/v1/tx/"+two.TxID+"/cancel", nil)
	h.call(t, mallory, http.MethodPost, "/api/v1/tx", wei(s, "in its place", "50")).wantStatus(t, "mallory, in the place of what it cancelled", http.StatusAccepted)
	h.Chain.StartMining()
	h.await(t, a.TxID, "CONFIRMED")
}

const coin = "0x00000000000000000000000000000000000c0123"

// units is data that a token's function is called with, for an address and an amount.
func units(selector string, addresses int, amount int) string {
	data := selector
	for range addresses {
		data += fmt.Sprintf("%064x", 0xe71b2)
	}
	return data + fmt.Sprintf("%064x", amount)
}

// Under a token's limits a caller cannot move or approve more of it. No function, malformed data,
// handler or intent queued earlier gets around them.
func TestACallerCannotMoveMoreOfAToken(t *testing.T) {
	t.Parallel()
	transaction := must(json.Marshal(map[string]any{"transaction": map[string]any{"to": coin, "data": units("0x095ea7b3", 1, 6), "gas": 100_000}}))(t)
	service := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) { _, _ = w.Write(transaction) })
	h := setup(t, stack.Options{Processes: 2, Settings: map[string]string{
		"FENCEPOST_HANDLERS_URLS": "drain=" + service.URL, "FENCEPOST_HANDLERS_SECRETS": "drain=whsec_" + strings.Repeat("QUJD", 8),
	}})
	h.Chain.StopMining()
	s := h.Submitters()[0]
	_, mallory := h.twoCallers(t, s, "handler:drain")
	asks := func(requestID, data string) answer {
		payload := map[string]any{"to": coin, "data": data, "value": "0", "gas": 100_000}
		return h.call(t, mallory, http.MethodPost, "/api/v1/tx", map[string]any{"submitter": s, "requestId": requestID, "payload": payload})
	}
	bound := h.post(t, mallory, s, "holds the nonce")
	h.await(t, bound.TxID, "TRACKING")
	early := asks("waits", units("0xa9059cbb", 1, 1_000_000))
	early.wantStatus(t, "before there are limits", http.StatusAccepted)
	h.setPolicy(t, s, client.Policy{MaxValue: "1", Tokens: map[string]client.TokenLimits{coin: {MaxAmount: "5", MaxAmountPerDay: "8"}}})
	for name, data := range map[string]string{
		"transfer": units("0xa9059cbb", 1, 6), "approve": units("0x095ea7b3", 1, 6), "transferFrom": units("0x23b872dd", 2, 6),
		"increaseAllowance": units("0x39509351", 1, 1), "permit": units("0xd505accf", 2, 1), "multicall": "0xac9650d8" + fmt.Sprintf("%064x", 32),
		"a word behind": units("0xa9059cbb", 1, 1) + fmt.Sprintf("%064x", 6), "a word too few": units("0xa9059cbb", 0, 1), "no data": "0x",
	} {
		asks("direct "+name, data).want(t, name, "403 POLICY_REFUSED", "payload.data")
	}
	asks("within", units("0x095ea7b3", 1, 5)).wantStatus(t, "within the limits", http.StatusAccepted)
	asks("more than the day", units("0xa9059cbb", 1, 4)).want(t, "more than the day", "429 DAILY_AMOUNT_EXCEEDED", "payload.data")
	made := h.call(t, mallory, http.MethodPost, "/api/v1/tx", map[string]any{"submitter": s, "requestId": "made", "handler": "drain", "payload": map[string]any{}})
	made.wantStatus(t, "by a handler", http.StatusAccepted)
	h.Chain.StartMining()
	h.await(t, early.TxID, "FAILED")
	h.await(t, made.TxID, "FAILED")
	for id, want := range map[string]string{early.TxID: "REJECTED no nonce: the submitter's policy allows at most 5", made.TxID: "PLACEHOLDER with nonce"} {
		got := h.says(t, `select sub_state || case when nonce is null then ' no nonce: ' else ' with nonce: ' end || last_error from managed_tx where tx_id = $1`, id)
		if !strings.HasPrefix(got, want) || !strings.Contains(got, "at most 5 of this token's smallest unit") {
			t.Errorf("got %q, want %s", got, want)
		}
	}
	h.wantCount(t, "signed of what is forbidden", 0, `select count(*) from tx_version v join managed_tx m using (tx_id) where m.tx_id = any($1) and v.kind = 'ORIGINAL'`, []string{early.TxID, made.TxID})
}
