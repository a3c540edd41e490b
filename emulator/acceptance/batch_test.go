package acceptance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

type batchResult struct {
	Status            int
	TxID, Code, Field string
	RetryAfterSeconds int
}

func (r batchResult) String() string {
	return fmt.Sprintf("%d %s %s", r.Status, r.Code, r.Field)
}

// mustBatch posts intents together, which must be answered 200.
func (b bench) mustBatch(t *testing.T, intents ...map[string]any) []batchResult {
	t.Helper()
	results, ok := b.postBatch(t, intents...)
	if !ok {
		t.Fatal("the batch was not answered")
	}
	return results
}

// postBatch posts intents together; ok is false where it was not answered 200.
func (b bench) postBatch(t *testing.T, intents ...map[string]any) (results []batchResult, ok bool) {
	t.Helper()
	status, answer, err := b.Call(b.ctx, stack.CallerAccount, http.MethodPost, "/api/v1/tx:batch", map[string]any{"intents": intents})
	var body struct{ Results []batchResult }
	if err != nil || status != http.StatusOK || json.Unmarshal(answer, &body) != nil || len(body.Results) != len(intents) {
		t.Logf("a batch of %d: got %d %.300s, %v", len(intents), status, answer, err)
		return nil, false
	}
	return body.Results, true
}

func (b bench) wantBatch(t *testing.T, intents []map[string]any, want ...string) (ids []string) {
	t.Helper()
	var got []string
	for _, r := range b.mustBatch(t, intents...) {
		got, ids = append(got, r.String()), append(ids, r.TxID)
	}
	same(t, "results", got, want)
	return ids
}

// A batch stores each valid intent, gives each its own result, and takes one round trip and one
// commit. The same batch again changes nothing.
func TestBatchCreate(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Window: 5, Processes: 1})
	first, second := b.Submitters()[0], b.Submitters()[1]
	to := map[string]any{"to": "0x00000000000000000000000000000000000cafe0"}
	intents := []map[string]any{
		transfer(first, "a"), transfer(first, "b"), transfer(second, "a"), transfer(first, "a"),
		{"submitter": first, "requestId": "c", "payload": map[string]any{"to": "0x12"}},
		{"submitter": first, "requestId": "", "payload": to},
		{"submitter": first, "requestId": "b", "payload": to},
		{"submitter": "eip155:1337:0x00000000000000000000000000000000000000ff", "requestId": "d", "payload": to},
	}
	refused := []string{"400 INVALID_FIELD payload.to", "400 INVALID_FIELD requestId", "409 REQUEST_ID_CONFLICT ", "404 UNKNOWN_SUBMITTER "}
	ids := b.wantBatch(t, intents, append([]string{"202  ", "202  ", "202  ", "200  "}, refused...)...)
	again := b.wantBatch(t, intents, append([]string{"200  ", "200  ", "200  ", "200  "}, refused...)...)
	if diff := cmp.Diff(ids, again); diff != "" || ids[0] != ids[3] {
		t.Errorf("txIds of the same batch again (-first +again):\n%s; of one requestId twice: %s, %s", diff, ids[0], ids[3])
	}
	b.cheap(t, intents[:len(intents)-1]) // the last intent's submitter needs an earlier permission query
	b.ends(t, map[txmanager.Submitter]int{first: 2, second: 1})
	for _, n := range []int{0, 501} {
		many := make([]map[string]any, n)
		for i := range many {
			many[i] = transfer(first, fmt.Sprint(i))
		}
		b.call(t, stack.CallerAccount, http.MethodPost, "/api/v1/tx:batch", map[string]any{"intents": many}).want(fmt.Sprint("a batch of ", n), http.StatusBadRequest)
	}
}

// cheap posts a batch several times and requires one round trip and one commit of the cheapest. Now
// and then a process also reads the epoch.
func (b bench) cheap(t *testing.T, intents []map[string]any) {
	t.Helper()
	var costs []stack.Cost
	for range 5 {
		before := b.Costs.Of("create")
		b.mustBatch(t, intents...)
		b.until(t, "the cost of the batch was never reported", func() bool { return b.Costs.Of("create").Invocations > before.Invocations })
		after := b.Costs.Of("create")
		cost := stack.Cost{SQLRoundTrips: after.SQLRoundTrips - before.SQLRoundTrips, Commits: after.Commits - before.Commits}
		if costs = append(costs, cost); cost == (stack.Cost{SQLRoundTrips: 1, Commits: 1}) {
			return
		}
	}
	t.Errorf("cost of the batch: got %+v, want one round trip and one commit", costs)
}

// One request with five hundred intents of two submitters is accepted, and they are carried out in its
// order.
func TestBatchOfFiveHundred(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Window: 250})
	var intents []map[string]any
	for i := range 250 {
		for _, s := range b.Submitters() {
			intents = append(intents, transfer(s, fmt.Sprintf("r-%03d", i)))
		}
	}
	ids := make(map[string]bool)
	for i, r := range b.mustBatch(t, intents...) {
		if ids[r.TxID] = true; r.Status != http.StatusAccepted {
			t.Errorf("intent %d: got %s, want 202", i, r)
		}
	}
	equal(t, "different txIds", len(ids), 500)
	b.ends(t, b.each(250))
	b.wantCount(t, "intents whose nonce is not their place in the batch", 0, `select count(*) from managed_tx where request_id <> 'r-' || lpad(nonce::text, 3, '0')`)
}

// In a batch a stored intent answers first, as it does alone. A temporary refusal says when to try
// again.
func TestBatchIsRefusedIntentByIntent(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: map[string]string{"FENCEPOST_QUEUE_MAX_PER_SUBMITTER": "2"}})
	full, protected := b.Submitters()[0], b.Submitters()[1]
	b.Tasks.SetFaults(dropEverything)
	known := []map[string]any{transfer(full, "a"), transfer(protected, "a"), transfer(full, "b")}
	b.wantBatch(t, known, "202  ", "202  ", "202  ")
	must(b.DB.Exec(b.ctx, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`, protected))(t)
	b.wantBatch(t, append(known, transfer(full, "c"), transfer(protected, "c")),
		"200  ", "200  ", "200  ", "429 QUEUE_FULL ", "409 SUBMITTER_PROTECTED ")
	results, _ := b.postBatch(t, transfer(full, "c"), transfer(protected, "c"))
	if len(results) != 2 || results[0].RetryAfterSeconds != 10 || results[1].RetryAfterSeconds != 0 {
		t.Errorf("when to come again: got %+v, want after 10 s for the full queue alone", results)
	}
}

// A batch with one malformed intent is refused as a whole, and the answer names the intent's position.
func TestBatchOfTheWrongForm(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Processes: 1})
	s := b.Submitters()[0]
	for field, wrong := range map[string]map[string]any{
		"intents[1].requestId": {"submitter": s, "requestId": 7, "payload": map[string]any{}},
		"intents[1].nonce":     {"submitter": s, "requestId": "b", "payload": map[string]any{}, "nonce": 7},
	} {
		body := map[string]any{"intents": []any{transfer(s, "a"), wrong}}
		b.call(t, stack.CallerAccount, http.MethodPost, "/api/v1/tx:batch", body).want(field, http.StatusBadRequest, `"field":"`+field+`"`)
	}
	b.wantCount(t, "stored", 0, `select count(*) from managed_tx`)
}

// A process that dies at any step of a batch leaves no partial result. The same batch again finds or
// stores all of it, and all of it ends.
func TestBatchSurvivesDeath(t *testing.T) {
	t.Parallel()
	points := []string{"create.received", "create.committed", "create.enqueued"}
	killedInTurn(t, stack.Options{Window: 5}, points, func(t *testing.T, b bench, folder, point string) {
		var intents []map[string]any
		for _, s := range b.Submitters() {
			intents = append(intents, transfer(s, "a"), transfer(s, "b"))
		}
		if _, ok := b.postBatch(t, intents...); ok {
			t.Error("the first batch was answered, want its process dead")
		}
		b.killed(t, folder, point)
		stored := b.count(`select count(*) from managed_tx where submitter = any ($1)`, b.Submitters())
		if want := map[bool]int{true: 0, false: 4}[point == "create.received"]; stored != want {
			t.Errorf("stored by who died: got %d, want %d", stored, want)
		}
		again := func() (ok bool) { _, ok = b.postBatch(t, intents...); return ok }
		b.until(t, "the same batch again: never answered", again)
		b.ends(t, b.each(2))
	})
}
