package transfers_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
)

// pagesOf returns the sizes of a list's pages and all its req_ids in order.
func pagesOf(t *testing.T, b bench, q transfers.AllQuery) (sizes []int, all []string) {
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

// An operator's list of all users' transfers has each row once, newest first, and its pages are full. Rare
// states, users and assets are found beside 20,000 transfers that the filters leave out.
func TestListAllHasFullPages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	eur := usdt
	eur.ID, eur.Name = 2, "EUR"
	b.put(t, eur)
	old := func(state, number int, user int64) string {
		id := fmt.Sprintf("00%024d", number)
		b.run(t, `alter table transfers_tb disable trigger user`)
		b.run(t, `insert into transfers_tb (req_id, user_id, asset_id, amount, precision, transfer_type, source_type, state, error_message, created_at)
			values ($1, $2, 1, 1, 6, 1, 1, $3::integer, case when $3::integer < 0 then 'INSUFFICIENT_BALANCE' end, clock_timestamp() - interval '1 year' + $4::integer * interval '1 s')`, id, user, state, number)
		b.run(t, `insert into transfer_history (transfer_id, from_state, state, retry_count) select transfer_id, 10, state, 0 from transfers_tb where req_id = $1`, id)
		b.run(t, `alter table transfers_tb enable trigger user`)
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
		q     transfers.AllQuery
		sizes []int
		all   []string
	}{
		"failed":              {transfers.AllQuery{State: &refused, Size: 2}, []int{2, 2, 1}, failed},
		"failed, exactly":     {transfers.AllQuery{State: &refused, Size: 5}, []int{5}, failed},
		"failed of a user":    {transfers.AllQuery{State: &refused, UserID: 8, Size: 5}, []int{0}, nil},
		"failed of an asset":  {transfers.AllQuery{State: &refused, Asset: "EUR", Size: 5}, []int{0}, nil},
		"refunded":            {transfers.AllQuery{State: &rolled, Size: 5}, []int{1}, []string{back}},
		"in flight":           {transfers.AllQuery{State: &pending, Size: 5}, []int{0}, nil},
		"not begun":           {transfers.AllQuery{State: &initial, Asset: "USDT", Size: 5}, []int{1}, []string{open}},
		"of a user":           {transfers.AllQuery{UserID: 9, Size: 5}, []int{1}, []string{stranger}},
		"of a user, by state": {transfers.AllQuery{UserID: 9, State: &committed, Asset: "USDT", Size: 5}, []int{1}, []string{stranger}},
	} {
		sizes, all := pagesOf(t, b, c.q)
		if !slices.Equal(sizes, c.sizes) || !slices.Equal(all, c.all) {
			t.Errorf("%s: got pages of %v with %v, want %v with %v", name, sizes, all, c.sizes, c.all)
		}
	}
	sizes, all := pagesOf(t, b, transfers.AllQuery{Size: 1000})
	seen := slices.Compact(slices.Sorted(slices.Values(all)))
	if want := 20_008; len(all) != want || len(seen) != want || len(sizes) != 21 || slices.Min(sizes) != 8 {
		t.Errorf("all: got pages of %v with %d rows, %d different; want 21 pages with %d", sizes, len(all), len(seen), want)
	}
	if sizes, all := pagesOf(t, b, transfers.AllQuery{UserID: 7, Size: 1000}); len(all) != 10_006 || len(sizes) != 11 || !strings.HasPrefix(all[0], "01") || all[len(all)-1] != failed[4] {
		t.Errorf("of the largest user: got pages of %v with %d rows", sizes, len(all))
	}
	for name, q := range map[string]transfers.AllQuery{"an asset": {Asset: "USDT", Size: 1}, "an asset's final ones": {Asset: "USDT", State: &committed, Size: 1}} {
		if _, _, err := b.ListAll(t.Context(), q); !errors.Is(err, transfers.ErrNoIndex) {
			t.Errorf("%s: got %v, want ErrNoIndex", name, err)
		}
	}
	if _, _, err := b.ListAll(t.Context(), transfers.AllQuery{After: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Size: 1}); !errors.Is(err, store.ErrCursor) {
		t.Errorf("an unknown cursor: got %v, want ErrCursor", err)
	}
}
