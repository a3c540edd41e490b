package acceptance

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/mark/gcs"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// marked reads the present mark as any process does.
func (b bench) marked(t *testing.T) mark.Observed {
	t.Helper()
	return must(b.markObject(t).Read(b.ctx))(t)
}

func (b bench) markObject(t *testing.T) *gcs.Object {
	t.Helper()
	o := must(gcs.Open(b.ctx, b.Storage.Bucket(), mark.ObjectName, b.Storage.Endpoint()))(t)
	t.Cleanup(func() { _ = o.Close() })
	return o
}

// sweepWritesAMark makes the last mark a minute old and runs the sweep.
func (b bench) sweepWritesAMark(t *testing.T) {
	t.Helper()
	must(b.DB.Exec(b.ctx, `update database_mark set at = at - interval '1 minute'`))(t)
	object := b.markObject(t)
	before, _ := object.Read(b.ctx)                         // none before the first sweep
	b.until(t, "no sweep has written a mark", func() bool { // until a sweep gets an uncut connection
		if b.RunSweep(b.ctx) != nil {
			return false
		}
		now, err := object.Read(b.ctx)
		return err == nil && now != before
	})
}

// A backup restored in the same cluster keeps every identity. The next comparison with the mark
// notices it: every submitter is in PROTECT and new intents are refused. The mark stays unchanged
// until an operator accepts the database.
func TestMarkNoticesABackupPutBack(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Mark: true})
	s := b.Submitters()[0]
	_, before := b.post(t, transfer(s, "before"))
	b.confirmed(t, before)
	b.sweepWritesAMark(t)
	first := b.marked(t)
	check(t, b.RunSweep(b.ctx))
	if second := b.marked(t); second.Generation != first.Generation && second.At.Minute() == first.At.Minute() {
		t.Errorf("two sweeps in one minute: got the marks %+v and %+v, want one", first, second)
	}
	b.BackUp(t)
	_, lost := b.postUntilNew(t, transfer(s, "lost"))
	b.confirmed(t, lost)
	b.sweepWritesAMark(t)
	current := b.marked(t)
	b.PutBack(t)

	b.until(t, "the backup was never noticed", func() bool { // until a sweep gets an uncut connection
		_ = b.RunSweep(b.ctx)
		return b.count(`select count(*) from protect_incident where closed_at is null`) > 0
	})
	for _, s := range b.Submitters() {
		b.inProtect(t, s, "not the one written last")
	}
	_, text := b.again(t, stack.CallerAccount, http.MethodPost, "/api/v1/tx", transfer(s, "lost"))
	says(t, "create", text, "SUBMITTER_PROTECTED")
	b.wantCount(t, "the lost request", 0, `select count(*) from managed_tx where request_id = 'lost'`)
	equal(t, "the mark (untouched by a database that does not hold it)", b.marked(t), current)
	b.operates(t, "/admin/v1/database/accept", map[string]any{"reason": "reconciled"})
	if now := b.marked(t); now.Generation <= current.Generation || now.Reason != "accepted" {
		t.Errorf("the mark after the acceptance: got %+v, want a new one", now)
	}
	if n := b.count(`select count(*) from transfer_halt where resumed_at is null`); n == 0 {
		t.Error("transfers after the acceptance: got no halt, want one")
	}
}

// postUntilNew repeats a post through cut connections until it is answered.
func (b bench) postUntilNew(t *testing.T, intent map[string]any) (status int, txID string) {
	t.Helper()
	status, text := b.again(t, stack.CallerAccount, http.MethodPost, "/api/v1/tx", intent)
	var answer struct{ TxID string }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.TxID == "" {
		t.Fatalf("post: got %d %s", status, text)
	}
	return status, answer.TxID
}

// A storage that does not answer stops nothing; a gauge shows it meanwhile.
func TestUnreachableMarkStopsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Mark: true, Processes: 1})
	s := b.Submitters()[0]
	b.sweepWritesAMark(t)
	b.gauges(t, map[string]float64{"fencepost_database_mark_uncompared": 0})
	b.Storage.Break(true)
	b.gauges(t, map[string]float64{"fencepost_database_mark_uncompared": 1})
	must(b.StartProcess(b.ctx, nil))(t) // a process that has never read the mark
	var ids []string
	for _, name := range []string{"a", "b", "c", "d"} {
		_, id := b.post(t, transfer(s, name))
		ids = append(ids, id)
	}
	for _, id := range ids {
		b.confirmed(t, id)
	}
	b.Storage.Break(false)
	b.until(t, "the gauge once the storage answers: got 1, want 0", func() bool { // any process can run the sweep
		if err := b.RunSweep(b.ctx); err != nil {
			return false
		}
		shown, _ := b.page(t)
		return shown["fencepost_database_mark_uncompared"] == 0
	})
}

func (b bench) releaseUntouched(t *testing.T, body map[string]any) (status int, out client.UntouchedReport, text string) {
	t.Helper()
	status, text = b.again(t, stack.OperatorAccount, http.MethodPost, "/admin/v1/database/release-untouched", body)
	if status == http.StatusOK {
		check(t, json.Unmarshal([]byte(text), &out))
	}
	return status, out, text
}

// A planned move: writes stop, the copy is confirmed, and every submitter is in PROTECT. Submitters
// whose accounts have sent nothing else are released in bulk. The copy is in the same cluster and is
// changed to look like another server's.
func TestPlannedMoveReleasesTheUntouched(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Mark: true, Submitters: 4, Nodes: 3, Processes: 1, Settings: withSettings(nodesQuick, map[string]string{
		"FENCEPOST_RPC_LEAVE_OUT": "1h",
	})})
	all := slices.Sorted(slices.Values(b.Submitters()))
	used := b.Submitters()[0] // its key is known to the test
	for _, s := range all {
		_, id := b.post(t, transfer(s, "before"))
		b.confirmed(t, id)
	}
	reason := map[string]any{"reason": "upgrade"}
	if status, _, text := b.releaseUntouched(t, reason); status != http.StatusConflict || !strings.Contains(text, "NOT_A_PLANNED_MOVE") {
		t.Errorf("without a move: got %d %s, want 409 NOT_A_PLANNED_MOVE", status, text)
	}
	said := mark.OperatorReason{By: "ada", Reason: "upgrade"}
	mover := func() mark.Mover {
		db := must(store.Open(b.ctx, storetest.Options(b.Database, storetest.Rules)))(t)
		t.Cleanup(db.Close)
		return mark.Mover{Keeper: mark.Keeper{Object: b.markObject(t), Book: db}, Moves: db}
	}
	must(mover().Expect(b.ctx, said))(t)
	b.call(t, stack.CallerAccount, http.MethodPost, "/api/v1/tx", transfer(used, "meanwhile")).want("create while a move is expected", http.StatusServiceUnavailable, "MOVE_EXPECTED")
	b.useTheKey(t, 1, 1)
	b.BackUp(t)
	b.PutBack(t)
	must(b.DB.Exec(b.ctx, `update database_identity set system_identifier = 1`))(t)
	must(b.DB.Exec(b.ctx, `update database_move set from_system = 1`))(t)
	check(t, mover().Confirm(b.ctx, said), "confirm-move")
	for _, s := range all {
		b.inProtect(t, s)
	}
	for _, body := range []map[string]any{{"reason": " "}, {"reason": "r", "pageSize": 0}, {"reason": "r", "pageToken": "nobody"}} {
		if status, _, text := b.releaseUntouched(t, body); status != http.StatusBadRequest {
			t.Errorf("%v: got %d %s, want 400", body, status, text)
		}
	}
	for _, n := range b.Nodes[1:] {
		n.SetFaults(rpcproxy.Faults{Unavailable: 1})
	}
	if status, out, text := b.releaseUntouched(t, map[string]any{"reason": "upgrade"}); status != http.StatusOK || len(out.Released) != 0 || len(out.Left) != 4 || out.Remaining != 4 {
		t.Errorf("by one node of three: got %d %s, want all four left", status, text)
	}
	b.Nodes[1].SetFaults(rpcproxy.Faults{})
	b.Nodes[2].SetFaults(rpcproxy.Faults{})
	var released, left []string
	b.until(t, "a submitter could not be released: the nodes are queried again some time after their faults", func() bool {
		left = nil
		again, body := false, map[string]any{"reason": "upgrade", "pageSize": 2}
		for more := true; more; {
			status, out, text := b.releaseUntouched(t, body)
			if status != http.StatusOK {
				t.Fatalf("release-untouched: got %d %s", status, text)
			}
			released = append(released, out.Released...)
			for _, l := range out.Left {
				left = append(left, l.Submitter)
				if strings.Contains(l.Why, "ask again") {
					again = true
				} else if !strings.Contains(l.Why, "next nonce here is 1") {
					t.Errorf("%s is left: got %q, want the counts", l.Submitter, l.Why)
				}
			}
			if more = out.NextPageToken != ""; !more && !again && out.Remaining != 1 {
				t.Errorf("remaining: got %d, want the one that was used", out.Remaining)
			}
			body["pageToken"] = out.NextPageToken
		}
		return !again
	})
	if len(released) != 3 || !slices.Equal(left, []string{string(used)}) {
		t.Fatalf("got released %v and left %v, want all but %s", released, left, used)
	}
	b.inProtect(t, used)
	_, id := b.postUntilNew(t, transfer(txmanager.Submitter(released[0]), "after"))
	b.confirmed(t, id)
	b.wantCount(t, "changes of the database's identity that put payouts in doubt", 0, `select count(*) from identity_change`)
}
