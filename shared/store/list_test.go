package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// pages follows the list to its end, and calls between before each page but the first.
func pages(t *testing.T, db storetest.Bundle, q store.ListQuery, v store.Viewer, between func()) (all []store.Listed, n int) {
	t.Helper()
	for {
		page, next, err := db.List(t.Context(), q, v)
		if err != nil || len(page) > q.Size || next != "" && len(page) < q.Size {
			t.Fatalf("list %+v: got %d, %v; want %d, and fewer only on the last page", q, len(page), err, q.Size)
		}
		all, n = append(all, page...), n+1
		if next == "" {
			return all, n
		}
		if q.After = next; n > 10_000 {
			t.Fatal("the list has no end")
		}
		between()
	}
}

func requestIDs(all []store.Listed) (names []string) {
	for _, one := range all {
		names = append(names, one.RequestID)
	}
	return names
}

// Each caller's list has its own transactions, the newest first, each once, whatever
// comes in between the pages; an operator's has everybody's.
func TestList(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	want := map[string][]string{}
	for i := range 23 {
		in := intent(alice, fmt.Sprint("r", i))
		in.Caller = []string{"shop", "bank", "shop", "till"}[i%4]
		check.OK(t)(db.Create(t.Context(), in, 1000))
		want[in.Caller] = slices.Insert(want[in.Caller], 0, in.RequestID)
		want[""] = slices.Insert(want[""], 0, in.RequestID)
	}
	post(t, db, bob, "another submitter's")
	for _, size := range []int{1, 2, 5, 23, 24, 500} {
		for _, v := range []store.Viewer{{Caller: "shop"}, {Caller: "bank"}, {Caller: "till"}, {Caller: "nobody"}, {Caller: "ann", Operator: true}} {
			key := v.Caller
			if v.Operator {
				key = ""
			}
			added := 0
			got, n := pages(t, db, store.ListQuery{Submitter: alice, Size: size}, v, func() {
				if added++; added == 1 && size > 1 { // newer than the first page: it is in none that follows
					in := intent(alice, fmt.Sprint("new", size, v.Caller))
					in.Caller, in.Names = "newcomer", []string{"newcomer", "*"}
					check.OK(t)(db.Create(t.Context(), in, 1000))
				}
			})
			got = slices.DeleteFunc(got, func(one store.Listed) bool { return one.RequestID[0] == 'n' })
			check.Same(t, fmt.Sprintf("of %q, %d a page, %d pages", key, size, n), requestIDs(got), want[key])
		}
	}
}

// A list of one state has all its transactions, and its end is found without reading final
// ones.
func TestListOfAState(t *testing.T) {
	t.Parallel()
	db := grown(t)
	heavy := numbered(0)
	var tail []string
	for i := range 3 {
		post(t, db, heavy, fmt.Sprint("queued", i))
		tail = slices.Insert(tail, 0, fmt.Sprint("queued", i))
	}
	none := func() {}
	for _, v := range []store.Viewer{shop, operator} {
		if got, n := pages(t, db, store.ListQuery{Submitter: heavy, State: txmanager.Queued, Size: 2}, v, none); n != 2 || !slices.Equal(requestIDs(got), tail) {
			t.Errorf("queued, operator %t: got %v in %d pages, want %v in 2", v.Operator, requestIDs(got), n, tail)
		}
		if got, n := pages(t, db, store.ListQuery{Submitter: heavy, State: txmanager.Stuck, Size: 2}, v, none); n != 1 || len(got) > 0 {
			t.Errorf("stuck, operator %t: got %v in %d pages, want none in 1", v.Operator, requestIDs(got), n)
		}
		if got, n := pages(t, db, store.ListQuery{Submitter: heavy, State: txmanager.Failed, Size: 500}, v, none); n != 1 || len(got) > 0 {
			t.Errorf("failed, operator %t: got %v in %d pages, want none in 1", v.Operator, requestIDs(got), n)
		}
		if got, n := pages(t, db, store.ListQuery{Submitter: heavy, State: txmanager.Confirmed, Size: 500}, v, none); len(got) != 25_001 {
			t.Errorf("confirmed, operator %t: got %d in %d pages, want 25001", v.Operator, len(got), n)
		}
	}
	busy := numbered(1_000_000)
	if got, _ := pages(t, db, store.ListQuery{Submitter: busy, State: txmanager.InFlight, Size: 500}, operator, none); len(got) != 0 {
		t.Errorf("in flight: got %v, want none: they are SUBMITTED", requestIDs(got))
	}
	if got, _ := pages(t, db, store.ListQuery{Submitter: busy, State: txmanager.Submitted, Size: 500}, operator, none); len(got) != 20 || got[0].Nonce == nil || *got[0].Nonce != 19 {
		t.Errorf("submitted: got %d, want 20 down from nonce 19", len(got))
	}
}

// A place is one of the list that it is given to.
func TestListFromANonPlace(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	post(t, db, alice, "a")
	id := post(t, db, bob, "b").TxID
	for name, q := range map[string]store.ListQuery{
		"another submitter's": {Submitter: alice, After: id, Size: 1},
		"nobody's":            {Submitter: alice, After: "01a1fda0-b1f9-7b07-a2c1-57c667e395bc", Size: 1},
	} {
		check.Err(t, name, store.ErrCursor)(db.List(t.Context(), q, operator))
	}
	check.Err(t, "another caller's", store.ErrCursor)(db.List(t.Context(), store.ListQuery{Submitter: bob, After: id, Size: 1}, store.Viewer{Caller: "somebody"}))
}
