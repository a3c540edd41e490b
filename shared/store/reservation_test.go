package store_test

import (
	"bytes"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// bookings are for reservations of owner at these nonces, from the cursor on.
func bookings(owner string, lasts time.Duration, nonces ...uint64) (all []txmanager.NewReservation) {
	one := big.NewInt(1)
	for _, n := range nonces {
		all = append(all, txmanager.NewReservation{Caller: "hooks", For: lasts, Tx: txmanager.Tx{
			ID: uuid.NewString(), RequestID: fmt.Sprintf("%s-%d-%s", owner, n, uuid.NewString()), Nonce: &n,
			Gas:         &txmanager.GasParams{Gas: 21_000, FeeCapWei: one, TipCapWei: one, ValueWei: one},
			Reservation: &txmanager.Reservation{State: txmanager.Reserved, Owner: owner},
		}})
	}
	return all
}

// reserve has owner hold the nonces from the cursor on, and says by which transactions.
func reserve(t *testing.T, db storetest.Bundle, owner string, nonces ...uint64) (ids []string) {
	t.Helper()
	all := bookings(owner, time.Hour, nonces...)
	write(t, db, txmanager.Commit{Lease: take(t, db, alice, "h/1").Lease, Reservations: all, LeaseEnd: txmanager.ReleaseAnyway})
	for _, b := range all {
		ids = append(ids, b.Tx.ID)
	}
	return ids
}

// usedMark hands in bytes.
func usedMark(txID, owner string, n uint64) txmanager.ReservationMark {
	one := big.NewInt(1)
	s := storetest.Signed(alice, n, txID)
	return txmanager.ReservationMark{TxID: txID, Owner: owner, To: txmanager.Used, Signed: &s, Gas: &txmanager.GasParams{Gas: 30_000, FeeCapWei: one, TipCapWei: one, ValueWei: one}}
}

func backMark(txID, owner string) txmanager.ReservationMark {
	return txmanager.ReservationMark{TxID: txID, Owner: owner, To: txmanager.Recyclable, Reason: "not needed"}
}

// says marks under a separate lease and reports whether the mark counted.
func says(t *testing.T, db storetest.Bundle, m txmanager.ReservationMark) bool {
	t.Helper()
	return write(t, db, txmanager.Commit{Lease: take(t, db, alice, "h/1").Lease, Mark: &m, LeaseEnd: txmanager.ReleaseAnyway}).Marked
}

// takeBack allocates the nonce that from gives up to the head of the queue.
func takeBack(t *testing.T, db storetest.Bundle, n uint64, from string, withBytes bool) (taker string, bound int) {
	t.Helper()
	w := take(t, db, alice, "a/1")
	one := givenOn(w, n, from, withBytes)
	done := write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: one, LeaseEnd: txmanager.ReleaseAnyway})
	return w.Queue[0].ID, done.Allocated
}

// givenOn allocates to the head of the queue of w the nonce that from gives up.
func givenOn(w txmanager.SubmitterState, n uint64, from string, withBytes bool) []txmanager.Allocation {
	w.NextNonce = n
	one := allocations(w, withBytes)[:1]
	one[0].FromReservation = from
	return one
}

// holders are the nonces with the request's owner, or name, and state, in order.
func holders(t *testing.T, db storetest.Bundle) []string {
	t.Helper()
	return value[[]string](t, db, `select array(select concat_ws(' ', nonce, coalesce(lock_owner, request_id), state, reservation)
		from managed_tx where nonce is not null order by nonce)`)
}

func wantHolders(t *testing.T, db storetest.Bundle, next int, want ...string) {
	t.Helper()
	check.Same(t, "nonces", holders(t, db), want)
	check.Equal(t, "next nonce", value[int](t, db, `select next_nonce from submitter_nonce_cursor where submitter = $1`, alice), next)
}

// A reservation holds its nonce as a transaction does, and its owner's bytes make it
// one; an intent gets the nonce behind it.
func TestReservedAndUsed(t *testing.T) {
	t.Parallel()
	db := registered(t, 4, alice)
	ids := reserve(t, db, "x", 0, 1)
	wantHolders(t, db, 2, "0 x IN_FLIGHT RESERVED", "1 x IN_FLIGHT RESERVED")
	check.Equal(t, "cursor", value[string](t, db, `select in_flight_state || in_flight_nonce from submitter_nonce_cursor`), "IN_FLIGHT0")
	check.Equal(t, "mark used by the owner", says(t, db, usedMark(ids[0], "x", 0)), true)
	post(t, db, alice, "intent")
	w := take(t, db, alice, "a/1")
	done := write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun})
	check.Equal(t, "allocated behind it", done.Allocated, 1)
	wantHolders(t, db, 3, "0 x SUBMITTED USED", "1 x IN_FLIGHT RESERVED", "2 intent SUBMITTED")
	w = take(t, db, alice, "a/1")
	x, want := w.Open[0], storetest.Signed(alice, 0, ids[0])
	if x.Hash() != want.Hash || !bytes.Equal(x.Raw, want.Raw) || x.Gas.Gas != 30_000 || x.SubmitAttempts != 1 || !x.NextResubmitAt.Equal(*x.LastSubmitAt) {
		t.Errorf("what is loaded: got %+v, want the owner's bytes, and a broadcast claimed", x)
	}
	if r := w.Open[1].Reservation; r == nil || r.State != txmanager.Reserved || r.Owner != "x" || time.Until(r.Until) < 50*time.Minute {
		t.Errorf("the other: got reservation %+v, want x's, for an hour", r)
	}
}

// A recyclable nonce is allocated again, below higher nonces that are held: to an intent, with
// bytes or without, and to another owner. The cursor stays.
func TestGivenBackIsGivenOutAgain(t *testing.T) {
	t.Parallel()
	for name, withBytes := range map[string]bool{"signed in this process": true, "signed later": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := registered(t, 4, alice)
			ids := reserve(t, db, "x", 0, 1)
			check.Equal(t, "mark used by the owner", says(t, db, usedMark(ids[1], "x", 1)), true)
			check.Equal(t, "give back by the owner", says(t, db, backMark(ids[0], "x")), true)
			post(t, db, alice, "intent")
			db.Run(t, `update managed_tx set wait_cause = 'NODES', waiting_since = now() where tx_id = $1`, ids[0])
			_, bound := takeBack(t, db, 0, ids[0], withBytes)
			check.Equal(t, "allocated of what was given back", bound, 1)
			state := map[bool]string{true: "SUBMITTED", false: "IN_FLIGHT"}[withBytes]
			wantHolders(t, db, 2, "0 intent "+state, "1 x SUBMITTED USED")
			got := value[string](t, db, `select concat_ws(' ', state, sub_state, last_error) from managed_tx where tx_id = $1`, ids[0])
			check.Equal(t, "the reservation", got, "FAILED CANCELLED given back unsigned: not needed; its nonce was given out again")
			check.Equal(t, "rows that wait", value[int](t, db, `select count(*) from managed_tx where wait_cause is not null or waiting_since is not null`), 0)
			check.Equal(t, "versions of nonce 0", value[int](t, db, `select count(*) from tx_version where nonce = 0`), map[bool]int{true: 1}[withBytes])
		})
	}
	t.Run("to another owner", func(t *testing.T) {
		t.Parallel()
		db := registered(t, 4, alice)
		ids := reserve(t, db, "x", 0, 1)
		check.Equal(t, "give back", says(t, db, backMark(ids[0], "x")), true)
		again := bookings("y", time.Hour, 0)
		again[0].From = ids[0]
		write(t, db, txmanager.Commit{Lease: take(t, db, alice, "h/1").Lease, Reservations: again, LeaseEnd: txmanager.ReleaseAnyway})
		wantHolders(t, db, 2, "0 y IN_FLIGHT RESERVED", "1 x IN_FLIGHT RESERVED")

		// The former owner's marks count no more, nor under the new owner's name.
		before := contents(t, db, written...)
		for _, late := range []txmanager.ReservationMark{usedMark(ids[0], "x", 0), backMark(ids[0], "x"), usedMark(again[0].Tx.ID, "x", 0), usedMark(ids[0], "y", 0)} {
			check.Equal(t, fmt.Sprintf("late mark %s of %s by %s", late.To, late.TxID, late.Owner), says(t, db, late), false)
		}
		wantSameBut(t, before, contents(t, db, written...))
	})
}

// wantSameBut compares contents, but for what a fenced write that changes nothing leaves
// on the cursor.
func wantSameBut(t *testing.T, before, after []string) {
	t.Helper()
	ofCursor := func(row string) bool { return strings.HasPrefix(row, "submitter_nonce_cursor") }
	check.Same(t, "what counts for nothing wrote", slices.DeleteFunc(slices.Clone(after), ofCursor), slices.DeleteFunc(slices.Clone(before), ofCursor))
}

// A mark counts while the reservation is its owner's alone, and once.
func TestMarksThatDoNotCount(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, db storetest.Bundle, id string){
		"another owner": func(*testing.T, storetest.Bundle, string) {},
		"given back":    func(t *testing.T, db storetest.Bundle, id string) { says(t, db, backMark(id, "x")) },
		"used":          func(t *testing.T, db storetest.Bundle, id string) { says(t, db, usedMark(id, "x", 0)) },
		"cancelled": func(t *testing.T, db storetest.Bundle, id string) {
			check.OK(t)(decide(t, db, id, operator, txmanager.ActionCancel))
		},
		"stuck": func(t *testing.T, db storetest.Bundle, id string) {
			db.Run(t, `update managed_tx set state = 'STUCK' where tx_id = $1`, id)
		},
		"a restored database": func(t *testing.T, db storetest.Bundle, _ string) { distrusted(t, db) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := registered(t, 1, alice)
			id, owner := reserve(t, db, "x", 0)[0], "x"
			if spoil(t, db, id); name == "another owner" {
				owner = "y"
			}
			w := take(t, db, alice, "h/1") // which protects, where it finds that it has to
			before := contents(t, db, written...)
			for _, m := range []txmanager.ReservationMark{usedMark(id, owner, 0), backMark(id, owner)} {
				check.Equal(t, fmt.Sprintf("%s: marked", m.To), write(t, db, txmanager.Commit{Lease: w.Lease, Mark: &m}).Marked, false)
			}
			wantSameBut(t, before, contents(t, db, written...))
		})
	}
}

// H13: a reservation whose time is over has no owner. Marks no longer count, and a recyclable
// nonce that was not allocated in time is not allocated again.
func TestH13TimeIsOver(t *testing.T) {
	t.Parallel()
	db := registered(t, 4, alice)
	all := bookings("x", 3*time.Second, 0, 1) // a busy machine takes a second to give one back
	write(t, db, txmanager.Commit{Lease: take(t, db, alice, "h/1").Lease, Reservations: all, LeaseEnd: txmanager.ReleaseAnyway})
	check.Equal(t, "give back in time", says(t, db, backMark(all[0].Tx.ID, "x")), true)
	storetest.Await(t, "their time is over", func() bool {
		return value[bool](t, db, `select every(lock_until < clock_timestamp()) from managed_tx`)
	})
	for _, m := range []txmanager.ReservationMark{usedMark(all[1].Tx.ID, "x", 1), backMark(all[1].Tx.ID, "x")} {
		check.Equal(t, fmt.Sprintf("mark %s", m.To), says(t, db, m), false)
	}
	post(t, db, alice, "intent")
	for _, from := range all {
		if _, bound := takeBack(t, db, *from.Tx.Nonce, from.Tx.ID, true); bound != 0 {
			t.Errorf("nonce %d: got it given out again", *from.Tx.Nonce)
		}
	}
	again := bookings("y", time.Hour, 0)
	again[0].From = all[0].Tx.ID
	check.Equal(t, "reserve it again", storetest.Violated(db.Commit(t.Context(), txmanager.Commit{Lease: take(t, db, alice, "h/1").Lease, Reservations: again})), "nonce_fits_state")
	wantHolders(t, db, 2, "0 x IN_FLIGHT RECYCLABLE", "1 x IN_FLIGHT RESERVED")
}

// Only a recyclable nonce is allocated again, while nothing is signed or requested for it, and
// no PROTECT incident is open.
func TestOnlyWhatWasGivenBack(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, db storetest.Bundle, id string){
		"reserved": func(*testing.T, storetest.Bundle, string) {},
		"used":     func(t *testing.T, db storetest.Bundle, id string) { says(t, db, usedMark(id, "x", 0)) },
		"cancelled": func(t *testing.T, db storetest.Bundle, id string) {
			says(t, db, backMark(id, "x"))
			check.OK(t)(decide(t, db, id, operator, txmanager.ActionCancel))
		},
		"PROTECT": func(t *testing.T, db storetest.Bundle, id string) {
			says(t, db, backMark(id, "x"))
			db.Run(t, openIncident, alice)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := registered(t, 1, alice)
			post(t, db, alice, "intent")
			id := reserve(t, db, "x", 0)[0]
			spoil(t, db, id)
			before := contents(t, db, written...)
			if _, bound := takeBack(t, db, 0, id, true); bound != 0 {
				t.Errorf("got it given to an intent")
			}
			again := bookings("y", time.Hour, 0)
			again[0].From = id
			check.Equal(t, "given to another owner", storetest.Violated(db.Commit(t.Context(), txmanager.Commit{Lease: take(t, db, alice, "h/1").Lease, Reservations: again})), "nonce_fits_state")
			wantSameBut(t, before, contents(t, db, written...))
		})
	}
}

// H5, of a recyclable nonce: if the intent that is to get it is cancelled meanwhile, the
// reservation keeps it.
func TestH05NewOwnerIsCancelledMeanwhile(t *testing.T) {
	t.Parallel()
	for end, bound := range map[string]int{"commit": 0, "rollback": 1} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			db := registered(t, 4, alice)
			ids := reserve(t, db, "x", 0, 1)
			says(t, db, backMark(ids[0], "x"))
			post(t, db, alice, "intent")
			w := take(t, db, alice, "a/1")
			one := givenOn(w, 0, ids[0], true)
			canceller := db.Holding(t, cancel, w.Queue[0].ID)
			writing := storetest.Blocked(t, db, "with locked as", func() (txmanager.CommitResult, error) {
				return db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Allocations: one})
			})
			canceller.Do(end)
			if done := <-writing; done.Err != nil || done.Got.Allocated != bound {
				t.Fatalf("allocate: got %+v, %v; want %d allocated", done.Got, done.Err, bound)
			}
			first := map[int]string{0: "0 x IN_FLIGHT RECYCLABLE", 1: "0 intent SUBMITTED"}[bound]
			wantHolders(t, db, 2, first, "1 x IN_FLIGHT RESERVED")
		})
	}
}

// Nonces that are asked for together are reserved together: where one cannot be had,
// none is, and nothing else of the write is made.
func TestReservedTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		nonces []uint64
		first  string
	}{
		"beyond the cursor":    {nonces: []uint64{0, 2}},
		"below the cursor":     {nonces: []uint64{0, 0}},
		"PROTECT":              {nonces: []uint64{0}, first: `insert into protect_incident (submitter, incident, evidence) values ('` + string(alice) + `', 1, '{}')`},
		"the request is taken": {nonces: []uint64{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := registered(t, 4, alice)
			all := bookings("x", time.Hour, c.nonces...)
			refusedBy := "nonce_fits_state"
			if name == "the request is taken" {
				post(t, db, alice, all[1].Tx.RequestID)
				refusedBy = "one_tx_per_request"
			}
			if c.first != "" {
				db.Run(t, c.first)
			}
			w := take(t, db, alice, "h/1")
			before := contents(t, db, written...)
			check.Equal(t, "reserve", storetest.Violated(db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Reservations: all})), refusedBy)
			check.Same(t, "the refused write wrote", contents(t, db, written...), before)
		})
	}
}

// A former lease holder can neither reserve, mark nor reallocate.
func TestHooksAreFenced(t *testing.T) {
	t.Parallel()
	db := registered(t, 4, alice)
	ids := reserve(t, db, "x", 0, 1)
	says(t, db, backMark(ids[0], "x"))
	post(t, db, alice, "intent")
	w := take(t, db, alice, "a/1")
	db.Run(t, `update submitter_lease set owner_node = 'b/1', fencing_token = fencing_token + 1`)
	one := allocations(w, true)
	one[0].Nonce, one[0].FromReservation = 0, ids[0]
	before := contents(t, db, written...)
	used := usedMark(ids[1], "x", 1)
	for name, wr := range map[string]txmanager.Commit{"reserve": {Reservations: bookings("y", time.Hour, 2)}, "mark": {Mark: &used}, "pass on": {Allocations: one}} {
		wr.Lease = w.Lease
		check.Err(t, name, lease.ErrFenced)(db.Commit(t.Context(), wr))
	}
	check.Same(t, "a former holder wrote", contents(t, db, written...), before)
}

// A recyclable nonce is room in a full window. A create then enqueues an advance, and the
// sweep finds a queue without one.
func TestGivenBackIsRoom(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	id := reserve(t, db, "x", 0)[0]
	check.Equal(t, "advance due for a create while the window is full", post(t, db, alice, "window full").Queued, false)
	says(t, db, backMark(id, "x"))
	check.Equal(t, "advance due for a create while a nonce was given back", post(t, db, alice, "given back").Queued, true)
	db.Run(t, `update managed_tx set created_at = clock_timestamp() - interval '1 minute' where state = 'QUEUED'`)
	db.Run(t, `update managed_tx set next_check_at = lock_until where tx_id = $1`, id)
	found, _, err := db.Overdue(t.Context(), 5*time.Second, 10, time.Time{})
	check.OK(t)(err)
	check.Same(t, "overdue", found, []txmanager.Submitter{alice})
}

// The sweep finds an unmarked reservation once its time is over.
func TestSweepFindsReservationsWhoseTimeIsOver(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	all := bookings("x", 10*time.Millisecond, 0)
	write(t, db, txmanager.Commit{Lease: take(t, db, alice, "h/1").Lease, Reservations: all, LeaseEnd: txmanager.ReleaseAnyway})
	storetest.Await(t, "the sweep finds it", func() bool {
		found, _, err := db.Overdue(t.Context(), 100*time.Millisecond, 10, time.Time{})
		return err == nil && len(found) == 1
	})
}

// Nothing that its owner signed is replaced by a higher fee: what it does is not known.
func TestNoReplacementOfAReservation(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	id := reserve(t, db, "x", 0)[0]
	says(t, db, usedMark(id, "x", 0))
	check.Err(t, "replace", store.ErrTooLate)(decide(t, db, id, operator, txmanager.ActionReplace))
	check.Equal(t, "placeholder", check.Value(decide(t, db, id, operator, txmanager.ActionPlaceholder))(t).RequestedAction, txmanager.ActionPlaceholder)
}

// Reservations are read by request and by txId.
func TestReservationsOnRecord(t *testing.T) {
	t.Parallel()
	db := registered(t, 4, alice)
	all := bookings("x", time.Hour, 0, 1, 2)
	write(t, db, txmanager.Commit{Lease: take(t, db, alice, "h/1").Lease, Reservations: all, LeaseEnd: txmanager.ReleaseAnyway})
	says(t, db, usedMark(all[1].Tx.ID, "x", 1))
	says(t, db, backMark(all[2].Tx.ID, "x"))
	post(t, db, alice, "intent")
	got := check.Value(db.Reservations(t.Context(), alice, []string{all[2].Tx.RequestID, "intent", "nobody's", all[0].Tx.RequestID, all[1].Tx.RequestID}))(t)
	var told []string
	for _, r := range got {
		told = append(told, fmt.Sprint(r.State, " ", r.Owner, " ", r.Over, " ", r.FirstHash != ""))
	}
	check.Same(t, "on record", told, []string{"RECYCLABLE x true false", "  true false", "RESERVED x false false", "USED x true true"})
	if r, err := db.Reservation(t.Context(), all[1].Tx.ID); err != nil || *r.Nonce != 1 || r.FirstHash != storetest.Signed(alice, 1, all[1].Tx.ID).Hash.String() {
		t.Errorf("by txId: got %+v, %v; want nonce 1 and the owner's bytes", r, err)
	}
	check.Err(t, "an intent's txId", store.ErrNotFound)(db.Reservation(t.Context(), got[1].TxID))
}
