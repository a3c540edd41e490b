package transfers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
)

// pagesOf returns the sizes of a list's pages and all its req_ids in order.
func pagesOf(t *testing.T, b bench, q transfers.ListQuery) (sizes []int, all []string) {
	t.Helper()
	for {
		page, next, err := b.ListAll(t.Context(), q)
		check.OK(t)(err)
		sizes = append(sizes, len(page))
		for _, one := range page {
			all = append(all, one.ReqID)
		}
		if next == "" {
			return sizes, all
		}
		q.After = next
	}
}

// insertOld stores a transfer that was created at that time, with its last transition.
func (b bench) insertOld(t *testing.T, reqID string, user int64, state transfer.State, created time.Time) {
	t.Helper()
	b.RunUnguarded(t, "transfers_tb", `insert into transfers_tb (req_id, user_id, asset_id, amount, precision, transfer_type, source_type, state, error_message, created_at)
		values ($1, $2, 1, 1, 6, 1, 1, $3::integer, case when $3::integer < 0 then 'INSUFFICIENT_BALANCE' end, $4)`, reqID, user, int(state), created)
	b.Run(t, `insert into transfer_history (transfer_id, from_state, state, retry_count) select transfer_id, 10, state, 0 from transfers_tb where req_id = $1`, reqID)
}

// An operator's list of all users' transfers has each row once, newest first, and its pages are full. Rare
// states, users and assets are found beside 20,000 transfers that the filters leave out.
func TestListAllHasFullPages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	eur := usdt
	eur.ID, eur.Name = 2, "EUR"
	b.put(t, eur)
	aYearAgo := time.Now().AddDate(-1, 0, 0)
	old := func(state transfer.State, number int, user int64) string {
		id := fmt.Sprintf("00%024d", number)
		b.insertOld(t, id, user, state, aYearAgo.Add(time.Duration(number)*time.Second))
		return id
	}
	var failed []string
	for n := range 5 {
		failed = append(failed, old(-10, n, 7))
	}
	back, stranger := old(-30, 5, 8), old(40, 6, 9)
	open := b.created(t, request("waits")).ReqID
	grow(t, b, 20_000)
	slices.Reverse(failed)
	refused, rolled, pending, initial, committed := transfer.Failed, transfer.RolledBack, transfer.TargetPending, transfer.Init, transfer.Committed
	for name, c := range map[string]struct {
		q     transfers.ListQuery
		sizes []int
		all   []string
	}{
		"failed":              {transfers.ListQuery{State: &refused, Size: 2}, []int{2, 2, 1}, failed},
		"failed, exactly":     {transfers.ListQuery{State: &refused, Size: 5}, []int{5}, failed},
		"failed of a user":    {transfers.ListQuery{State: &refused, UserID: 8, Size: 5}, []int{0}, nil},
		"failed of an asset":  {transfers.ListQuery{State: &refused, Asset: "EUR", Size: 5}, []int{0}, nil},
		"refunded":            {transfers.ListQuery{State: &rolled, Size: 5}, []int{1}, []string{back}},
		"in flight":           {transfers.ListQuery{State: &pending, Size: 5}, []int{0}, nil},
		"not begun":           {transfers.ListQuery{State: &initial, Asset: "USDT", Size: 5}, []int{1}, []string{open}},
		"of a user":           {transfers.ListQuery{UserID: 9, Size: 5}, []int{1}, []string{stranger}},
		"of a user, by state": {transfers.ListQuery{UserID: 9, State: &committed, Asset: "USDT", Size: 5}, []int{1}, []string{stranger}},
	} {
		sizes, all := pagesOf(t, b, c.q)
		if !slices.Equal(sizes, c.sizes) || !slices.Equal(all, c.all) {
			t.Errorf("%s: got pages of %v with %v, want %v with %v", name, sizes, all, c.sizes, c.all)
		}
	}
	sizes, all := pagesOf(t, b, transfers.ListQuery{Size: 1000})
	seen := slices.Compact(slices.Sorted(slices.Values(all)))
	if want := 20_008; len(all) != want || len(seen) != want || len(sizes) != 21 || slices.Min(sizes) != 8 {
		t.Errorf("all: got pages of %v with %d rows, %d different; want 21 pages with %d", sizes, len(all), len(seen), want)
	}
	if sizes, all := pagesOf(t, b, transfers.ListQuery{UserID: 7, Size: 1000}); len(all) != 10_006 || len(sizes) != 11 || !strings.HasPrefix(all[0], "01") || all[len(all)-1] != failed[4] {
		t.Errorf("of the largest user: got pages of %v with %d rows", sizes, len(all))
	}
	for name, q := range map[string]transfers.ListQuery{"an asset": {Asset: "USDT", Size: 1}, "an asset's final ones": {Asset: "USDT", State: &committed, Size: 1}} {
		check.Err(t, name, transfers.ErrNoIndex)(b.ListAll(t.Context(), q))
	}
	check.Err(t, "an unknown cursor", store.ErrCursor)(b.ListAll(t.Context(), transfers.ListQuery{After: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Size: 1}))
}

// An operator's list of old transfers has those created before the time, newest first. The times in their req_ids may be a
// minute off.
func TestListAllByAge(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	now := time.Now()
	hours := func(n float64) time.Duration { return time.Duration(n * float64(time.Hour)) }
	names := map[string]string{}
	old := func(name string, age, skew time.Duration, user int64, state transfer.State) {
		var id ulid.ULID
		check.OK(t)(0, id.SetTime(ulid.Timestamp(now.Add(skew-age))))
		names[id.String()] = name
		b.insertOld(t, id.String(), user, state, now.Add(-age))
	}
	pending, failed, committed := transfer.TargetPending, transfer.Failed, transfer.Committed
	old("alice 4", hours(4), 0, alice, pending)
	old("alice 3 failed", hours(3), 0, alice, failed)
	old("bob 3.5", hours(3.5), 0, bob, pending)
	old("bob 2.5 failed", hours(2.5), 0, bob, failed)
	old("alice 2.2", hours(2.2), 0, alice, committed)
	old("alice 2 and a bit", hours(2)+time.Second, 40*time.Second, alice, pending)
	old("alice 2 less a bit", hours(2)-time.Second, -40*time.Second, alice, pending)
	old("alice 1", hours(1), 0, alice, failed)
	old("bob 1", hours(0.9), 0, bob, pending)
	before := now.Add(-hours(2))
	for name, c := range map[string]struct {
		q    transfers.ListQuery
		want string
	}{
		"all":                       {transfers.ListQuery{}, "alice 2 and a bit, alice 2.2, bob 2.5 failed, alice 3 failed, bob 3.5, alice 4"},
		"open":                      {transfers.ListQuery{State: &pending}, "alice 2 and a bit, bob 3.5, alice 4"},
		"open of an asset":          {transfers.ListQuery{State: &pending, Asset: "USDT"}, "alice 2 and a bit, bob 3.5, alice 4"},
		"failed":                    {transfers.ListQuery{State: &failed}, "bob 2.5 failed, alice 3 failed"},
		"failed of an asset":        {transfers.ListQuery{State: &failed, Asset: "USDT"}, "bob 2.5 failed, alice 3 failed"},
		"of a user":                 {transfers.ListQuery{UserID: bob}, "bob 2.5 failed, bob 3.5"},
		"open of a user":            {transfers.ListQuery{UserID: alice, State: &pending}, "alice 2 and a bit, alice 4"},
		"failed of a user":          {transfers.ListQuery{UserID: alice, State: &failed}, "alice 3 failed"},
		"of a user and an asset":    {transfers.ListQuery{UserID: alice, Asset: "USDT", State: &committed}, "alice 2.2"},
		"open of a user, of no age": {transfers.ListQuery{UserID: bob, State: &pending, Before: new(now.Add(time.Hour))}, "bob 1, bob 3.5"},
	} {
		for _, size := range []int{1, 2, 10} {
			if c.q.Size = size; c.q.Before == nil {
				c.q.Before = &before
			}
			_, ids := pagesOf(t, b, c.q)
			var got []string
			for _, id := range ids {
				got = append(got, names[id])
			}
			check.Equal(t, fmt.Sprintf("%s, %d a page", name, size), strings.Join(got, ", "), c.want)
		}
	}
	for name, q := range map[string]transfers.ListQuery{"an asset": {Asset: "USDT"}, "an asset's final ones": {Asset: "USDT", State: &committed}} {
		q.Before, q.Size = &before, 1
		check.Err(t, name, transfers.ErrNoIndex)(b.ListAll(t.Context(), q))
	}
}

// A list of one user before a time has every older transfer. It reads no more rows than the page, although the
// index also leads to those of that very time.
func TestListOfOneUserBeforeATime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	newest := time.Now().Add(-time.Hour).Truncate(time.Microsecond)
	var older []string
	for n := range 4 {
		id := fmt.Sprintf("00%024d", 4-n)
		b.insertOld(t, id, 7, transfer.Committed, newest.Add(-time.Duration(n)*time.Second))
		if n > 0 {
			older = append(older, id)
		}
	}
	for name, state := range map[string]*transfer.State{"any": nil, "COMMITTED": new(transfer.Committed)} {
		q := transfers.ListQuery{UserID: 7, State: state, Before: &newest, Size: 1}
		_, got := pagesOf(t, b, q)
		check.Same(t, name, got, older)
		check.Equal(t, name+": rows of a window", transfers.WindowRowsOf(q), q.Size+1)
	}
}
