package store_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

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
	busy := numbered(1_000_000)
	for _, c := range []struct {
		sub            txmanager.Submitter
		state          txmanager.State
		size, n, pages int
	}{
		{heavy, txmanager.Queued, 2, 3, 2}, {heavy, txmanager.Stuck, 2, 0, 1}, {heavy, txmanager.Failed, 500, 0, 1}, {heavy, txmanager.Confirmed, 500, 25_001, 51},
		{busy, txmanager.InFlight, 500, 0, 1}, {busy, txmanager.Submitted, 500, 20, 1},
	} {
		for _, v := range []store.Viewer{shop, operator} {
			got, n := pages(t, db, store.ListQuery{Submitter: c.sub, State: c.state, Size: c.size}, v, func() {})
			if len(got) != c.n || n != c.pages {
				t.Fatalf("%s, operator %t: got %d in %d pages, want %d in %d", c.state, v.Operator, len(got), n, c.n, c.pages)
			}
			switch c.state {
			case txmanager.Queued:
				check.Same(t, "queued", requestIDs(got), tail)
			case txmanager.Submitted:
				check.Same(t, "highest nonce of the submitted", got[0].Nonce, new(int64(19)))
			}
		}
	}
}

// A place is one of the list that it is given to.
func TestListsFromANonPlace(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	post(t, db, alice, "a")
	id := post(t, db, bob, "b").TxID
	const nobodys = "01a1fda0-b1f9-7b07-a2c1-57c667e395bc"
	for name, after := range map[string]string{"another submitter's": id, "nobody's": nobodys} {
		check.Err(t, name, store.ErrCursor)(db.List(t.Context(), store.ListQuery{Submitter: alice, After: after, Size: 1}, operator))
		check.Err(t, name+", of a filter", store.ErrCursor)(db.FindTxs(t.Context(), store.TxFilter{Submitter: alice, After: after, Size: 1}))
	}
	check.Err(t, "nobody's, of all submitters", store.ErrCursor)(db.FindTxs(t.Context(), store.TxFilter{After: nobodys, Size: 1}))
	check.Err(t, "another caller's", store.ErrCursor)(db.List(t.Context(), store.ListQuery{Submitter: bob, After: id, Size: 1}, store.Viewer{Caller: "somebody"}))
}

// mixed is a database with transactions of two submitters and two callers in six states, some of which
// wait for a cause, and the time after half of them.
func mixed(t *testing.T) (db storetest.Bundle, half time.Time) {
	t.Helper()
	db = registered(t, 6, alice, bob)
	for i := range 12 {
		for _, s := range []txmanager.Submitter{alice, bob} {
			in := intent(s, fmt.Sprint("r", i))
			in.TxID = uuid.Must(uuid.NewV7()).String()
			in.Caller = []string{"shop", "bank"}[i%2]
			check.OK(t)(db.Create(t.Context(), in, 1000))
		}
		if i == 5 {
			half = value[time.Time](t, db, `select clock_timestamp() from pg_sleep(0.01)`)
		}
	}
	for _, s := range []txmanager.Submitter{alice, bob} {
		sendAll(t, db, s)
	}
	db.Run(t, `update managed_tx set state = 'TRACKING', sub_state = 'PENDING' where nonce in (1, 2, 3, 4)`)
	db.Run(t, `update managed_tx set state = 'STUCK', sub_state = null, wait_cause = 'OPERATOR', waiting_since = now() where nonce in (2, 3)`)
	db.Run(t, `update managed_tx set state = 'CONFIRMED', sub_state = null, receipt = '{}', confirmations = '[]', confirmed_at = now() where nonce = 4`)
	db.Run(t, `update managed_tx set state = 'FAILED', sub_state = 'CANCELLED' where request_id in ('r8', 'r11')`)
	db.Run(t, `update managed_tx set wait_cause = 'BALANCE', waiting_since = now() where request_id in ('r7', 'r9')`)
	return db, half
}

// found follows the pages of the filter to the end.
func found(t *testing.T, db storetest.Bundle, f store.TxFilter) (all []store.FoundTx, err error) {
	t.Helper()
	for {
		page, next, err := db.FindTxs(t.Context(), f)
		if err != nil {
			return nil, err
		}
		if next != "" && len(page) != f.Size || len(page) > f.Size {
			t.Fatalf("%+v: got a page of %d, want %d", f, len(page), f.Size)
		}
		if all = append(all, page...); next == "" {
			return all, nil
		}
		f.After = next
	}
}

// Each combination of filters finds what a scan of all transactions finds, or is refused by the
// parameter that no index serves.
func TestFindTxs(t *testing.T) {
	t.Parallel()
	db, half := mixed(t)
	every := check.Value(found(t, db, store.TxFilter{Size: 1000}))(t)
	check.Equal(t, "transactions", len(every), 24)
	if !slices.IsSortedFunc(every, func(a, b store.FoundTx) int { return strings.Compare(b.TxID, a.TxID) }) {
		t.Error("all: got another order than the newest first")
	}
	hash := *every[slices.IndexFunc(every, func(r store.FoundTx) bool { return r.Nonce != nil && *r.Nonce == 1 })].TxHash
	refused := map[string]int{}
	for _, f := range filters(half, hash) {
		var want []string
		for _, r := range every {
			if fits(f, r) {
				want = append(want, r.TxID)
			}
		}
		got, err := found(t, db, f)
		if e, ok := errors.AsType[store.NoIndexError](err); ok {
			refused[e.Error()]++
			if f.Submitter != "" && f.Cause == "" || f.Hash != "" {
				t.Errorf("%s: got %v, want the rows", name(f), e)
			}
			continue
		}
		check.OK(t)(err)
		var ids []string
		for _, r := range got {
			ids = append(ids, r.TxID)
		}
		if f.Cause != "" || f.RequestID != "" { // by submitter
			slices.Sort(ids)
			slices.Reverse(ids)
		}
		check.Same(t, name(f), ids, want)
	}
	for _, want := range []string{"nonce needs", "requestId with a further", "caller needs", "state needs submitter for QUEUED", "cause with since", "cause does not go"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(refused)), func(text string) bool { return strings.Contains(text, want) }) {
			t.Errorf("got the refusals %v, want one with %q", refused, want)
		}
	}
}

// filters are the combinations of one value or none of each parameter, with pages of three.
func filters(half time.Time, hash string) []store.TxFilter {
	all := []store.TxFilter{{Size: 3}}
	vary := func(values int, set func(f *store.TxFilter, i int)) {
		for _, f := range slices.Clone(all) {
			for i := range values {
				set(&f, i)
				all = append(all, f)
			}
		}
	}
	vary(2, func(f *store.TxFilter, i int) { f.Submitter = []txmanager.Submitter{alice, bob}[i] })
	vary(8, func(f *store.TxFilter, i int) { f.State = txmanager.States()[i] })
	vary(2, func(f *store.TxFilter, i int) {
		f.Cause = []txmanager.WaitCause{txmanager.WaitBalance, txmanager.WaitForOperator}[i]
	})
	vary(1, func(f *store.TxFilter, _ int) { f.Since = &half })
	vary(1, func(f *store.TxFilter, _ int) { f.Caller = "shop" })
	vary(1, func(f *store.TxFilter, _ int) { f.RequestID = "r9" })
	vary(1, func(f *store.TxFilter, _ int) { f.Nonce = new(int64(1)) })
	vary(1, func(f *store.TxFilter, _ int) { f.Hash = hash })
	return all
}

// fits is the filter's meaning.
func fits(f store.TxFilter, r store.FoundTx) bool {
	return (f.Submitter == "" || r.Submitter == f.Submitter) && (f.State == "" || r.State == f.State) && (f.Cause == "" || r.Cause != nil && *r.Cause == f.Cause) &&
		(f.Since == nil || !r.CreatedAt.Before(*f.Since)) && (f.Caller == "" || r.Caller == f.Caller) && (f.RequestID == "" || r.RequestID == f.RequestID) &&
		(f.Nonce == nil || r.Nonce != nil && *r.Nonce == *f.Nonce) && (f.Hash == "" || r.TxHash != nil && *r.TxHash == f.Hash)
}

func name(f store.TxFilter) string {
	nonce := "any"
	if f.Nonce != nil {
		nonce = fmt.Sprint(*f.Nonce)
	}
	return fmt.Sprintf("submitter %s, state %s, cause %s, since %t, caller %s, request %s, nonce %s, hash %t", f.Submitter, f.State, f.Cause, f.Since != nil, f.Caller, f.RequestID, nonce, f.Hash != "")
}

// The lane has each nonce once: our transactions with their states, foreign ones, and the gaps that are on
// no record.
func TestLane(t *testing.T) {
	t.Parallel()
	db, _ := mixed(t)
	db.Run(t, newForeign+`($1, 5, 1, $2, 7, $2, 1, sha256('x'), true, '{}', 'n'), ($1, 8, 1, $2, 7, $2, 1, sha256('x'), true, '{}', 'n')`, alice, "0x"+strings.Repeat("ab", 32))
	show := func(from *int64, size int) (text string, l store.Lane) {
		t.Helper()
		l, err := db.Lane(t.Context(), alice, from, size)
		check.OK(t)(err)
		var squares []string
		for _, n := range l.Nonces {
			state := "-"
			if n.State != nil {
				state = string(*n.State)
			}
			cause := ""
			if n.Cause != nil {
				cause = " " + string(*n.Cause)
			}
			squares = append(squares, fmt.Sprint(n.Nonce, " ", n.Kind, " ", state, cause))
		}
		return strings.Join(squares, ", "), l
	}
	const all = "0 OURS SUBMITTED BROADCAST, 1 OURS TRACKING INCLUSION, 2 OURS STUCK OPERATOR, 3 OURS STUCK OPERATOR, 4 OURS CONFIRMED, 5 LOST SUBMITTED BROADCAST, 6 GAP -, 7 GAP -, 8 LOST -"
	got, lane := show(nil, 100)
	check.Equal(t, "all", got, all)
	if lane.StartNonce != 0 || lane.NextNonce != 6 || lane.LowestOpen == nil || *lane.LowestOpen != 0 || lane.Beyond != 9 {
		t.Errorf("bounds: got %+v", lane)
	}
	if last := lane.Nonces[8]; last.ForeignTx == nil || last.TxID != nil || lane.Nonces[0].RequestID == nil || *lane.Nonces[0].RequestID != "r0" {
		t.Errorf("got %+v and %+v, want the foreign transaction and the request", last, lane.Nonces[0])
	}
	for _, c := range []struct {
		from *int64
		size int
		want string
	}{{new(int64(3)), 2, "3 OURS STUCK OPERATOR, 4 OURS CONFIRMED"}, {nil, 1, "0 OURS SUBMITTED BROADCAST"}, {new(int64(8)), 5, "8 LOST -"}, {new(int64(9)), 5, ""}, {new(int64(1<<63 - 1)), 5, ""}} {
		got, _ := show(c.from, c.size)
		check.Equal(t, fmt.Sprintf("size %d", c.size), got, c.want)
	}
	check.Err(t, "an unknown submitter", store.ErrUnknownSubmitter)(db.Lane(t.Context(), numbered(7), nil, 5))
}

// The queue has the intents in their order, with the cause that a query of each transaction shows.
func TestQueue(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	postAll(t, db, alice, "1", "2", "3", "4")
	sendAll(t, db, alice)
	postAll(t, db, bob, "1", "2", "3")
	db.Run(t, `update managed_tx set wait_cause = 'BALANCE', waiting_since = now() where submitter = $1 and request_id = '1'`, bob)
	db.Run(t, `update managed_tx set held = true where submitter = $1 and request_id = '3'`, bob)
	for s, want := range map[txmanager.Submitter]string{alice: "0 2 WINDOW_FULL, 1 3 EARLIER_INTENT, 2 4 EARLIER_INTENT", bob: "0 1 BALANCE, 1 2 EARLIER_INTENT"} {
		for _, size := range []int{1, 2, 10} {
			var all []string
			for after := int64(0); ; {
				page := check.Value(db.Queue(t.Context(), s, after, size))(t)
				for _, q := range page {
					all = append(all, fmt.Sprint(q.Ahead, " ", q.RequestID, " ", q.Cause))
					_, w, err := db.TxWaiting(t.Context(), q.TxID, operator)
					if err != nil || w.Cause != q.Cause || *w.Position != q.Ahead+1 || q.Since.IsZero() {
						t.Errorf("%s: got %+v, %v; want %s since %s, %d ahead", q.RequestID, w, err, q.Cause, q.Since, q.Ahead)
					}
					after = q.Seq
				}
				if len(page) < size {
					break
				}
			}
			check.Equal(t, fmt.Sprintf("%s, pages of %d", s, size), strings.Join(all, ", "), want)
		}
	}
	check.Err(t, "an unknown submitter", store.ErrUnknownSubmitter)(db.Queue(t.Context(), numbered(7), 0, 5))
}
