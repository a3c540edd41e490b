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

// A page begins after a transaction of the list.
func TestFindTxsFromANonPlace(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	id := post(t, db, alice, "a").TxID
	for what, f := range map[string]store.TxFilter{
		"another submitter's": {Submitter: bob, After: id, Size: 1},
		"nobody's":            {After: "01a1fda0-b1f9-7b07-a2c1-57c667e395bc", Size: 1},
	} {
		check.Err(t, what, store.ErrCursor)(db.FindTxs(t.Context(), f))
	}
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
