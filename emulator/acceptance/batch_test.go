package acceptance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/nonce"
)

// A batch stores what can be stored, each intent with its own result, in one
// round trip and one commit; the same batch again changes nothing.
func TestBatchCreate(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Window: 5})
	first, second := b.Submitters()[0], b.Submitters()[1]
	intents := []map[string]any{
		transfer(first, "a"), transfer(first, "b"), transfer(second, "a"), transfer(first, "a"),
		{"submitter": first, "requestId": "c", "payload": map[string]any{"to": "0x12"}},
		{"submitter": first, "requestId": "", "payload": map[string]any{"to": "0x00000000000000000000000000000000000cafe0"}},
		{"submitter": "eip155:1337:0x00000000000000000000000000000000000000ff", "requestId": "d", "payload": map[string]any{"to": "0x00000000000000000000000000000000000cafe0"}},
	}
	type result struct {
		Status            int
		TxID, Code, Field string
	}
	send := func(want ...string) (ids []string) {
		t.Helper()
		status, answer, err := b.Call(b.ctx, stack.CallerAccount, http.MethodPost, "/api/v1/tx:batch", map[string]any{"intents": intents})
		var body struct{ Results []result }
		if err != nil || status != http.StatusOK || json.Unmarshal(answer, &body) != nil {
			t.Fatalf("batch: got %d %s, %v", status, answer, err)
		}
		var got []string
		for _, r := range body.Results {
			got, ids = append(got, fmt.Sprintf("%d %s %s", r.Status, r.Code, r.Field)), append(ids, r.TxID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("results (-want +got):\n%s", diff)
		}
		return ids
	}
	before := b.Costs.Of("create")
	ids := send("202  ", "202  ", "202  ", "200  ", "400 INVALID_FIELD payload.to", "400 INVALID_FIELD requestId", "404 UNKNOWN_SUBMITTER ")
	err := poll(b.ctx, func() bool { return b.Costs.Of("create").Invocations > before.Invocations })
	if cost := b.Costs.Of("create"); err != nil || cost.SQLRoundTrips-before.SQLRoundTrips > 2 || cost.Commits-before.Commits > 2 { // one more may read the epoch
		t.Errorf("cost: got %+v after %+v, %v; want one round trip and one commit", cost, before, err)
	}
	again := send("200  ", "200  ", "200  ", "200  ", "400 INVALID_FIELD payload.to", "400 INVALID_FIELD requestId", "404 UNKNOWN_SUBMITTER ")
	if diff := cmp.Diff(ids, again); diff != "" || ids[0] != ids[3] {
		t.Errorf("txIds of the same batch again (-first +again):\n%s; of one requestId twice: %s, %s", diff, ids[0], ids[3])
	}
	b.ends(t, map[nonce.Submitter]int{first: 2, second: 1})
	for _, n := range []int{0, 501} {
		many := make([]map[string]any, n)
		for i := range many {
			many[i] = transfer(first, fmt.Sprint(i))
		}
		status, answer, err := b.Call(b.ctx, stack.CallerAccount, http.MethodPost, "/api/v1/tx:batch", map[string]any{"intents": many})
		if err != nil || status != http.StatusBadRequest {
			t.Errorf("a batch of %d: got %d %.200s, %v; want 400", n, status, answer, err)
		}
	}
}
