package transfers_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
)

// due returns the transfers that the sweep takes, by req_id.
func (b bench) due(t testing.TB, limit int, began time.Time) ([]string, time.Time) {
	t.Helper()
	found, now, err := b.Due(t.Context(), time.Minute, limit, began)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, d := range found {
		all = append(all, d.ReqID)
	}
	slices.Sort(all)
	return all, now
}

// old makes the times of the transfer's last change older.
func (b bench) old(t testing.TB, reqID, by string) {
	t.Helper()
	b.run(t, `update transfers_tb set updated_at = updated_at - $2::text::interval where req_id = $1`, reqID, by)
}

// postponed adds an unknown answer, in any state that waits for one.
func (b bench) postponed(t testing.TB, x transfer.Transfer, first time.Duration) transfer.Transfer {
	t.Helper()
	m, err := b.Postpone(t.Context(), transfer.Postponement{ReqID: x.ReqID, State: x.State, RetryCount: x.RetryCount, First: first, Most: 24 * time.Hour, Unknown: "?"})
	if err != nil || !m.Done {
		t.Fatalf("postpone: got %+v, %v; want it done", m, err)
	}
	return m.Now
}

// loaded returns the transfer as stored.
func (b bench) loaded(t testing.TB, reqID string) transfer.Transfer {
	t.Helper()
	x, err := b.Load(t.Context(), reqID)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// The sweep takes exactly the transfers of dead workers, in any state, whose attempt has been due for
// long enough.
func TestDueFindsTransfersOfDeadWorkers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var want []string
	for _, s := range transfer.States() {
		left, fresh := b.at(t, s), b.at(t, s)
		b.run(t, `alter table transfers_tb disable trigger guard_transfer`)
		b.old(t, left.ReqID, "61 s")
		b.old(t, fresh.ReqID, "50 s")
		b.run(t, `alter table transfers_tb enable trigger guard_transfer`)
		if !s.Terminal() {
			want = append(want, left.ReqID)
		}
		if s.AwaitedOp() == "" {
			continue
		}
		late := b.postponed(t, b.at(t, s), time.Millisecond)
		b.postponed(t, b.at(t, s), time.Hour)
		b.run(t, `update transfers_tb set next_attempt_at = clock_timestamp() - interval '61 s' where req_id = $1`, late.ReqID)
		b.run(t, `update transfers_tb set next_attempt_at = clock_timestamp() - interval '50 s' where req_id = $1`, b.postponed(t, b.at(t, s), time.Hour).ReqID)
		want = append(want, late.ReqID)
	}
	slices.Sort(want)
	got, now := b.due(t, 100, time.Time{})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("due (-want +got):\n%s", diff)
	}
	if since := value[time.Time](t, b, `select clock_timestamp()`).Sub(now); since < 0 || since > time.Minute {
		t.Errorf("time: got %v, want the database's clock", now)
	}
}

// A retry does not delay the rescue of a dead worker's transfer. The retry can come from the
// back-off of an earlier state, a frozen worker's late postponement, a client's repeated request, or a
// sweep that took the transfer and died.
func TestARetryDoesNotPostponeTheRescue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	taken := func(what, reqID string, want bool) {
		t.Helper()
		got, _ := b.due(t, 100, time.Time{})
		if slices.Contains(got, reqID) != want {
			t.Errorf("%s: got %v, want it among them %t", what, got, want)
		}
	}
	r := request("c-1")
	x := b.created(t, r)
	if m, err := b.Start(t.Context(), x.ReqID, time.Hour); err != nil || !m.Done {
		t.Fatalf("start: got %+v, %v", m, err)
	}
	x.State = transfer.SourcePending
	x = b.postponed(t, x, time.Hour)
	b.old(t, x.ReqID, "61 s")
	taken("in back-off for an hour", x.ReqID, false)

	// It moves on all the same, and the worker that moved it dies before the call.
	m, err := b.Move(t.Context(), transfer.Transition{ReqID: x.ReqID, Path: []transfer.State{10, 20, 30}})
	if err != nil || !m.Done {
		t.Fatalf("move: got %+v, %v", m, err)
	}
	taken("moved just now", x.ReqID, false)
	b.old(t, x.ReqID, "61 s")
	taken("moved a minute ago, the back-off of the earlier state not over", x.ReqID, true)

	// A worker that was frozen since the earlier state postpones.
	for _, late := range []transfer.Postponement{
		{ReqID: x.ReqID, State: 10, RetryCount: 1, First: time.Hour, Most: time.Hour, Unknown: "late"},
		{ReqID: x.ReqID, State: 30, RetryCount: 0, First: time.Hour, Most: time.Hour, Unknown: "late"},
	} {
		if m, err := b.Postpone(t.Context(), late); err != nil || m.Done || m.Now.RetryCount != 1 {
			t.Errorf("a late postponement %+v: got %+v, %v; want it ignored", late, m, err)
		}
	}
	taken("after a frozen worker's word", x.ReqID, true)
	if c, err := b.Create(t.Context(), r, terms); err != nil || c.ReqID != x.ReqID {
		t.Fatal(err)
	}
	taken("after the client asked again, and for the second sweep", x.ReqID, true)

	// An unknown answer that two workers see at once counts once.
	first := m.Now
	b.postponed(t, first, time.Millisecond)
	if again, err := b.Postpone(t.Context(), transfer.Postponement{ReqID: x.ReqID, State: 30, RetryCount: first.RetryCount, First: time.Hour, Most: time.Hour}); err != nil || again.Done || again.Now.Failures != 1 {
		t.Errorf("the second of two: got %+v, %v; want it unheard", again, err)
	}

	// The target refuses at last; the worker that recorded it dies before the refund.
	b.postponed(t, b.loaded(t, x.ReqID), time.Hour)
	m, err = b.Move(t.Context(), transfer.Transition{ReqID: x.ReqID, Path: []transfer.State{30, -20}, Reason: transfer.AccountDisabled})
	if err != nil || !m.Done || m.Now.NextAttemptAt != nil || m.Now.Failures != 0 || m.Now.RetryCount != 3 {
		t.Fatalf("move: got %+v, %v; want nothing planned, three retries", m, err)
	}
	b.old(t, x.ReqID, "61 s")
	taken("refused a minute ago, the back-off of the earlier state not over", x.ReqID, true)
}

// After the database's clock was set back the times of open transfers are in the future. The sweep
// takes them at once, and MON-001 names those in TARGET_PENDING, because their duration is unknown.
func TestClockSetBackSilencesNeitherRescueNorMON001(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	moved, planned, fresh := b.at(t, transfer.TargetPending), b.postponed(t, b.at(t, transfer.SourcePending), time.Minute), b.at(t, transfer.TargetPending)
	for _, id := range []string{moved.ReqID, planned.ReqID} {
		b.run(t, `update transfers_tb set updated_at = updated_at + interval '1 hour', state_at = state_at + interval '1 hour',
			next_attempt_at = next_attempt_at + interval '1 hour', swept_at = clock_timestamp() + interval '1 hour' where req_id = $1`, id)
	}
	want := []string{moved.ReqID, planned.ReqID}
	slices.Sort(want)
	got, now := b.due(t, 100, time.Time{})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("due (-want +got):\n%s", diff)
	}
	if again, _ := b.due(t, 100, now); len(again) != 0 {
		t.Errorf("taken once more by the same sweep: got %v, want none", again)
	}
	pending, _, err := b.Alarming(t.Context(), transfer.DefaultRules(), 10)
	if err != nil || pending.Count != 1 || len(pending.Newest) != 1 || pending.Newest[0].ReqID != moved.ReqID || pending.Longest < 0 {
		t.Errorf("MON-001: got %+v, %v; want %s alone, and not %s", pending, err, moved.ReqID, fresh.ReqID)
	}
	b.postponed(t, b.loaded(t, planned.ReqID), time.Minute)
	if after, _ := b.due(t, 100, time.Time{}); slices.Contains(after, planned.ReqID) {
		t.Errorf("planned again by the clock as it is: got it taken by the sweep, want it left to its task")
	}
}

// The back-off doubles in the database's time, up to its maximum.
func TestBackOffDoublesToItsMost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	x := b.at(t, transfer.TargetPending)
	for n := range 70 {
		m, err := b.Postpone(t.Context(), transfer.Postponement{ReqID: x.ReqID, State: 30, RetryCount: n, First: 2 * time.Second, Most: time.Minute, Unknown: "?"})
		if err != nil || !m.Done {
			t.Fatalf("postpone %d: got %+v, %v", n, m, err)
		}
		want := min(2*time.Second<<min(n, 10), time.Minute)
		if got := m.Now.NextAttemptAt.Sub(m.Now.UpdatedAt); got > want || got < want-time.Second {
			t.Errorf("after %d: got %s, want %s", n+1, got, want)
		}
	}
}

// Two sweeps share the work. One of them takes each transfer once, and neither waits for the other or
// for a worker.
func TestSweepsShareTheWork(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 5 {
		b.old(t, b.created(t, request("")).ReqID, "1 hour")
	}
	began := time.Time{}
	var sizes []int
	for range 4 {
		got, now := b.due(t, 2, began)
		if began.IsZero() {
			began = now
		}
		sizes = append(sizes, len(got))
	}
	if diff := cmp.Diff([]int{2, 2, 1, 0}, sizes); diff != "" {
		t.Errorf("due in the batches of one sweep (-want +got):\n%s", diff)
	}
	tx, err := b.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	var other []string
	if err := tx.QueryRow(t.Context(), `select array(select req_id::text from transfers_tb order by transfer_id limit 2 for update)`).Scan(&other); err != nil {
		t.Fatal(err)
	}
	got, _ := b.due(t, 10, time.Time{})
	if len(got) != 3 || slices.Contains(got, other[0]) || slices.Contains(got, other[1]) {
		t.Errorf("beside another: got %v, want all but %v", got, other)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if last, _ := b.due(t, 2, time.Time{}); len(last) != 2 || !slices.Contains(other, last[0]) || !slices.Contains(other, last[1]) {
		t.Errorf("then: got %v, want those that were not taken for the longest time: %v", last, other)
	}
}

// MON-001 and MON-002: money in flight for over a minute, and the third unknown refund, are alerts;
// nothing else is.
func TestMON001And002Alarming(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	long := b.at(t, transfer.TargetPending)
	b.run(t, `update transfers_tb set state_at = state_at - interval '61 s' where req_id = $1`, long.ReqID)
	for _, s := range []transfer.State{transfer.SourcePending, transfer.SourceDone, transfer.Compensating} {
		b.run(t, `update transfers_tb set state_at = state_at - interval '1 hour' where req_id = $1`, b.at(t, s).ReqID)
	}
	b.postponed(t, b.at(t, transfer.TargetPending), time.Second)
	refund := b.at(t, transfer.Compensating)
	alarming := func(refunds int) []string {
		return append(b.newest(t, transfer.TargetPending, 10, 1), b.newest(t, transfer.Compensating, 10, refunds)...)
	}
	for n := range 3 {
		if diff := cmp.Diff([]string{long.ReqID}, alarming(0)); diff != "" {
			t.Errorf("after %d refunds unknown (-want +got):\n%s", n, diff)
		}
		refund = b.postponed(t, refund, time.Second)
	}
	if diff := cmp.Diff([]string{long.ReqID, refund.ReqID}, alarming(1)); diff != "" {
		t.Errorf("after 3 refunds unknown (-want +got):\n%s", diff)
	}
}

// newest returns the ids in the alert of a state, and checks their total number.
func (b bench) newest(t testing.TB, s transfer.State, limit, count int) (ids []string) {
	t.Helper()
	pending, refunds, err := b.Alarming(t.Context(), transfer.DefaultRules(), limit)
	if err != nil {
		t.Fatal(err)
	}
	late := map[transfer.State]transfers.Late{transfer.TargetPending: pending, transfer.Compensating: refunds}[s]
	if late.Count != count || count > 0 && late.Longest <= 0 {
		t.Errorf("alarming in %s: got %d for %s, want %d", s, late.Count, late.Longest, count)
	}
	for _, x := range late.Newest {
		ids = append(ids, x.ReqID)
	}
	return ids
}

// With any number of late transfers the newest of each alert are named, and all count.
func TestManyLateTransfersAllCount(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	want := map[transfer.State]string{}
	for _, s := range []transfer.State{transfer.Compensating, transfer.TargetPending} {
		for n := 5; n > 1; n-- {
			x := b.at(t, s)
			b.run(t, `update transfers_tb set state_at = state_at - $2 * interval '1 minute', retry_count = 3, failures = 3 where req_id = $1`, x.ReqID, n)
			want[s] = x.ReqID
		}
	}
	for s, last := range want {
		if got := b.newest(t, s, 1, 4); !slices.Equal(got, []string{last}) {
			t.Errorf("named in %s: got %v, want the last, %s", s, got, last)
		}
	}
}

func TestMON004NamesBusyUsers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for n, user := range []int64{alice, alice, alice, bob, bob} {
		r := request("")
		r.UserID = user
		x := b.created(t, r)
		if n == 4 {
			b.run(t, `alter table transfers_tb disable trigger user`)
			b.run(t, `update transfers_tb set created_at = created_at - interval '1 hour' where req_id = $1`, x.ReqID)
		}
	}
	for most, want := range map[int][]transfers.Busy{0: {{alice, 3}, {bob, 1}}, 2: {{alice, 3}}, 3: {}} {
		got, err := b.Busy(t.Context(), time.Minute, most, 10)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("more than %d in a minute: %v (-want +got):\n%s", most, err, diff)
		}
	}
}

// Requests from before the database's clock was set back do not count for the last minute. MON-004
// names no user because of them, and hides no present requests.
func TestMON004AfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run(t, `alter table transfers_tb disable trigger user`)
	for n, user := range []int64{alice, alice, alice, bob, bob} {
		r := request("")
		r.UserID = user
		x := b.created(t, r)
		if n < 2 {
			b.run(t, `update transfers_tb set created_at = created_at + interval '1 hour' where req_id = $1`, x.ReqID)
		}
	}
	got, err := b.Busy(t.Context(), time.Minute, 1, 1)
	if diff := cmp.Diff([]transfers.Busy{{bob, 2}}, got); diff != "" || err != nil {
		t.Errorf("more than 1 in a minute: %v (-want +got):\n%s", err, diff)
	}
}
