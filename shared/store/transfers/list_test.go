package transfers_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
)

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
	b.run(t, `alter table transfers_tb disable trigger user`)
	b.run(t, `update transfers_tb t set created_at = (select min(created_at) from transfers_tb) - interval '1 h' + (transfer_id / 4) * interval '1 s'`)
	b.run(t, `alter table transfers_tb enable trigger user`)
	failed := b.at(t, transfer.Failed).ReqID
	want = slices.Insert(want, 0, failed)
	for _, size := range []int{1, 2, 3, 5, 13, 100} {
		if diff := cmp.Diff(want, b.all(t, transfers.ListQuery{UserID: alice, Size: size})); diff != "" {
			t.Errorf("%d a page (-want +got):\n%s", size, diff)
		}
	}
	of := transfer.Failed
	if diff := cmp.Diff([]string{failed}, b.all(t, transfers.ListQuery{UserID: alice, State: &of, Size: 1})); diff != "" {
		t.Errorf("failed (-want +got):\n%s", diff)
	}
	for name, q := range map[string]transfers.ListQuery{"another's": {UserID: alice, After: theirs, Size: 1}, "nobody's": {UserID: alice, After: request("").ReqID, Size: 1}} {
		if _, _, err := b.List(t.Context(), q); !errors.Is(err, store.ErrCursor) {
			t.Errorf("a place of %s: got %v, want ErrCursor", name, err)
		}
	}
}

// A list of one state ends, and finds its transfers among thousands of others.
func TestListOfOneStateEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.at(t, transfer.SourceDone).ReqID
	b.run(t, `alter table transfers_tb disable trigger user`)
	b.run(t, `update transfers_tb set created_at = created_at - interval '1 year'`)
	grow(t, b, 3000)
	of := transfer.SourceDone
	if diff := cmp.Diff([]string{first}, b.all(t, transfers.ListQuery{UserID: alice, State: &of, Size: 10})); diff != "" {
		t.Errorf("in SOURCE_DONE (-want +got):\n%s", diff)
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
