package transfers_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// due returns the transfers that the sweep takes, by req_id.
func (b bench) due(t testing.TB, limit int, began time.Time) ([]string, time.Time) {
	t.Helper()
	found, now, err := b.Due(t.Context(), time.Minute, limit, began)
	check.OK(t)(err)
	return append([]string{}, slices.Sorted(slices.Values(found))...), now
}

// old makes the times of the transfer's last change older.
func (b bench) old(t testing.TB, reqID, by string) {
	t.Helper()
	b.Run(t, `update transfers_tb set updated_at = updated_at - $2::text::interval where req_id = $1`, reqID, by)
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
	return check.Value(b.Load(t.Context(), reqID))(t)
}

// The sweep takes exactly the transfers of dead workers, in any state, whose attempt has been due for
// long enough.
func TestDueFindsTransfersOfDeadWorkers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var want []string
	for _, s := range transfer.States() {
		left, fresh := b.at(t, s), b.at(t, s)
		b.Run(t, `alter table transfers_tb disable trigger guard_transfer`)
		b.old(t, left.ReqID, "61 s")
		b.old(t, fresh.ReqID, "50 s")
		b.Run(t, `alter table transfers_tb enable trigger guard_transfer`)
		if !s.Terminal() {
			want = append(want, left.ReqID)
		}
		if s.AwaitedOp() == "" {
			continue
		}
		late := b.postponed(t, b.at(t, s), time.Millisecond)
		b.postponed(t, b.at(t, s), time.Hour)
		b.Run(t, `update transfers_tb set next_attempt_at = clock_timestamp() - interval '61 s' where req_id = $1`, late.ReqID)
		b.Run(t, `update transfers_tb set next_attempt_at = clock_timestamp() - interval '50 s' where req_id = $1`, b.postponed(t, b.at(t, s), time.Hour).ReqID)
		want = append(want, late.ReqID)
	}
	slices.Sort(want)
	got, now := b.due(t, 100, time.Time{})
	check.Same(t, "due", got, want)
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
		check.Equal(t, what, slices.Contains(got, reqID), want)
	}
	r := request("c-1")
	x := b.created(t, r)
	check.Equal(t, "started", check.Value(b.Start(t.Context(), x.ReqID, time.Hour))(t).Done, true)
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
		b.Run(t, `update transfers_tb set updated_at = updated_at + interval '1 hour', state_at = state_at + interval '1 hour',
			next_attempt_at = next_attempt_at + interval '1 hour', swept_at = clock_timestamp() + interval '1 hour' where req_id = $1`, id)
	}
	want := []string{moved.ReqID, planned.ReqID}
	slices.Sort(want)
	got, now := b.due(t, 100, time.Time{})
	check.Same(t, "due", got, want)
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
	check.Same(t, "due in the batches of one sweep", sizes, []int{2, 2, 1, 0})
	tx := check.Value(b.DB.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	var other []string
	check.OK(t)(tx.QueryRow(t.Context(), `select array(select req_id::text from transfers_tb order by transfer_id limit 2 for update)`).Scan(&other))
	got, _ := b.due(t, 10, time.Time{})
	if len(got) != 3 || slices.Contains(got, other[0]) || slices.Contains(got, other[1]) {
		t.Errorf("beside another: got %v, want all but %v", got, other)
	}
	check.OK(t)(tx.Rollback(t.Context()))
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
	b.Run(t, `update transfers_tb set state_at = state_at - interval '61 s' where req_id = $1`, long.ReqID)
	for _, s := range []transfer.State{transfer.SourcePending, transfer.SourceDone, transfer.Compensating} {
		b.Run(t, `update transfers_tb set state_at = state_at - interval '1 hour' where req_id = $1`, b.at(t, s).ReqID)
	}
	b.postponed(t, b.at(t, transfer.TargetPending), time.Second)
	refund := b.at(t, transfer.Compensating)
	alarming := func(refunds int) []string {
		return append(b.newest(t, transfer.TargetPending, 10, 1), b.newest(t, transfer.Compensating, 10, refunds)...)
	}
	for n := range 3 {
		check.Same(t, fmt.Sprintf("after %d refunds unknown", n), alarming(0), []string{long.ReqID})
		refund = b.postponed(t, refund, time.Second)
	}
	check.Same(t, "after 3 refunds unknown", alarming(1), []string{long.ReqID, refund.ReqID})
}

// newest returns the ids in the alert of a state, and checks their total number.
func (b bench) newest(t testing.TB, s transfer.State, limit, count int) (ids []string) {
	t.Helper()
	pending, refunds, err := b.Alarming(t.Context(), transfer.DefaultRules(), limit)
	check.OK(t)(err)
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
			b.Run(t, `update transfers_tb set state_at = state_at - $2 * interval '1 minute', retry_count = 3, failures = 3 where req_id = $1`, x.ReqID, n)
			want[s] = x.ReqID
		}
	}
	for s, last := range want {
		if got := b.newest(t, s, 1, 4); !slices.Equal(got, []string{last}) {
			t.Errorf("named in %s: got %v, want the last, %s", s, got, last)
		}
	}
}

// MON-004 names the users of many requests in the last minute. Those from before the database's clock was set
// back do not count: MON-004 names no user because of them, and hides no present requests.
func TestMON004NamesBusyUsers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Run(t, `alter table transfers_tb disable trigger user`)
	var ids []string
	for _, user := range []int64{alice, alice, alice, bob, bob} {
		r := request("")
		r.UserID = user
		ids = append(ids, b.created(t, r).ReqID)
	}
	shift := func(by string, ids ...string) {
		b.Run(t, `update transfers_tb set created_at = created_at + $2::text::interval where req_id = any ($1)`, ids, by)
	}
	shift("-1 hour", ids[4])
	for most, want := range map[int][]transfers.Busy{0: {{alice, 3}, {bob, 1}}, 2: {{alice, 3}}, 3: {}} {
		check.Same(t, fmt.Sprintf("more than %d in a minute", most), check.Value(b.Busy(t.Context(), time.Minute, most, 10))(t), want)
	}
	shift("1 hour", ids[0], ids[1], ids[4])
	check.Same(t, "after the clock was set back", check.Value(b.Busy(t.Context(), time.Minute, 1, 1))(t), []transfers.Busy{{bob, 2}})
}

// late is a transfer that is in flight for two minutes.
func (b bench) late(t testing.TB) transfer.Transfer {
	t.Helper()
	x := b.at(t, transfer.TargetPending)
	b.Run(t, `update transfers_tb set state_at = state_at - interval '2 minutes' where req_id = $1`, x.ReqID)
	return x
}

// An acknowledged transfer raises no alert until its time, while others do. After that, in another state, or
// after a restore, it does again: a payout may be in doubt then. By, reason and until are recorded.
func TestAcknowledgedAlertIsSilentUntilItsTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	alarming := func(what string, pending, refunds int) {
		t.Helper()
		p, f, err := r.Alarming(t.Context(), transfer.DefaultRules(), 10)
		if err != nil || p.Count != pending || len(p.Newest) != pending || f.Count != refunds || len(f.Newest) != refunds {
			t.Errorf("%s: got %d late and %d refunds, %v; want %d and %d", what, p.Count, f.Count, err, pending, refunds)
		}
	}
	x, _ := r.late(t), r.late(t)
	alarming("before", 2, 0)
	order := transfer.RequestedAction{ReqID: x.ReqID, By: "ann", Reason: "I repair the core"}
	for _, until := range []time.Time{time.Now().Add(-time.Minute), time.Now().Add(31 * 24 * time.Hour)} {
		check.Err(t, fmt.Sprintf("until %s", until), transfers.ErrUntil)(r.Acknowledge(t.Context(), order, until))
	}
	check.Err(t, "in INIT", transfers.ErrNothingToAcknowledge)(r.Acknowledge(t.Context(), transfer.RequestedAction{ReqID: r.created(t, request("")).ReqID, By: "ann", Reason: "r"}, time.Now().Add(time.Hour)))
	check.Err(t, "none", transfer.ErrNotFound)(r.Acknowledge(t.Context(), transfer.RequestedAction{ReqID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", By: "ann", Reason: "r"}, time.Now().Add(time.Hour)))
	check.OK(t)(r.Acknowledge(t.Context(), order, time.Now().Add(time.Hour)))
	alarming("acknowledged", 1, 0)
	story, err := r.Why(t.Context(), x.ReqID)
	if err != nil || len(story.Acknowledged) != 1 || story.Acknowledged[0].By != "ann" || story.Acknowledged[0].Reason != order.Reason || story.Acknowledged[0].State != transfer.TargetPending {
		t.Errorf("on record: got %+v, %v", story.Acknowledged, err)
	}
	r.Run(t, `alter table transfer_acknowledgement disable trigger user`)
	r.Run(t, `update transfer_acknowledgement set at = at - interval '90 seconds', until = clock_timestamp() - interval '1 second'`)
	alarming("once its time is over", 2, 0)
	r.Run(t, `update transfer_acknowledgement set until = clock_timestamp() + interval '1 hour'`)
	alarming("as before", 1, 0)
	r.Run(t, `insert into identity_change (system_identifier, timeline_id, by, reason) values (1, 1, 'ann', 'restored')`)
	alarming("after a restore", 2, 0)
	check.OK(t)(r.Acknowledge(t.Context(), order, time.Now().Add(time.Hour)))
	alarming("acknowledged again", 1, 0)
	r.Run(t, `select move_transfer($1, '{30,-20}', 'ACCOUNT_DISABLED')`, x.ReqID)
	r.Run(t, `update transfers_tb set failures = 3, retry_count = 3, last_unknown = 'x' where req_id = $1`, x.ReqID)
	alarming("in another state", 1, 1)
	check.OK(t)(r.Acknowledge(t.Context(), order, time.Now().Add(time.Hour)))
	alarming("acknowledged there, too", 1, 0)
}

// A user's list has only the user's transfers, newest first, each once, also those of one microsecond
// on two pages.
func TestListHasTheUsersTransfersOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var want []string
	for range 12 {
		want = slices.Insert(want, 0, b.created(t, request("")).ReqID)
	}
	others := request("")
	others.UserID = bob
	theirs := b.created(t, others).ReqID
	b.RunUnguarded(t, "transfers_tb", `update transfers_tb t set created_at = (select min(created_at) from transfers_tb) - interval '1 h' + (transfer_id / 4) * interval '1 s'`)
	failed := b.at(t, transfer.Failed).ReqID
	want = slices.Insert(want, 0, failed)
	for _, size := range []int{1, 2, 3, 5, 13, 100} {
		check.Same(t, fmt.Sprintf("%d a page", size), b.all(t, transfers.ListQuery{UserID: alice, Size: size}), want)
	}
	of := transfer.Failed
	check.Same(t, "failed", b.all(t, transfers.ListQuery{UserID: alice, State: &of, Size: 1}), []string{failed})
	for name, q := range map[string]transfers.ListQuery{"another's": {UserID: alice, After: theirs, Size: 1}, "nobody's": {UserID: alice, After: request("").ReqID, Size: 1}} {
		check.Err(t, fmt.Sprintf("a place of %s", name), store.ErrCursor)(b.List(t.Context(), q))
	}
}

// A user's list by state has full pages up to the last, behind thousands of others of the user and of all users. Its first page is one
// round trip.
func TestListOfOneStateHasFullPages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	old := make(map[transfer.State][]string)
	for _, state := range []transfer.State{transfer.Failed, transfer.RolledBack, transfer.SourceDone} {
		for range 5 {
			old[state] = slices.Insert(old[state], 0, b.at(t, state).ReqID)
		}
	}
	b.Run(t, `alter table transfers_tb disable trigger user`)
	b.Run(t, `update transfers_tb set created_at = created_at - interval '1 year'`)
	grow(t, b, 3000)
	for state, want := range old {
		q := transfers.ListQuery{UserID: alice, State: &state, Size: 2}
		for i := 0; i < len(want); i += q.Size {
			ctx := telemetry.WithMeter(t.Context())
			page, next, err := b.List(ctx, q)
			size := min(q.Size, len(want)-i)
			if err != nil || len(page) != size || page[0].ReqID != want[i] || (next == "") != (i+q.Size >= len(want)) {
				t.Errorf("%s, page from %d on: got %d, next %q, %v; want %d", state, i, len(page), next, err, size)
			}
			if q.After == "" {
				check.Equal(t, "round trips of a page", telemetry.MeterFrom(ctx).Cost().SQLRoundTrips, 1)
			}
			q.After = next
		}
	}
}

// all reads the list to its end.
func (b bench) all(t *testing.T, q transfers.ListQuery) (ids []string) {
	t.Helper()
	for range 10_000 {
		page, next, err := b.List(t.Context(), q)
		if err != nil || len(page) > q.Size {
			t.Fatalf("list %+v: got %d, %v; want at most %d", q, len(page), err, q.Size)
		}
		for _, x := range page {
			ids = append(ids, x.ReqID)
		}
		if q.After = next; next == "" {
			return ids
		}
	}
	t.Fatal("the list has no end")
	return nil
}
