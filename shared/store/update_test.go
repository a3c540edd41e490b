package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// window is an update of alice's window.
func window(n int) store.SubmitterUpdate {
	return store.SubmitterUpdate{Submitter: alice, MaxInFlight: &n, By: "ann", Reason: "r"}
}

// A narrower window keeps open transactions and stops allocation, also by a holder of the lease that loaded
// the wider one. A wider window allocates again.
func TestUpdateOfTheWindow(t *testing.T) {
	t.Parallel()
	db := registered(t, 3, alice)
	postAll(t, db, alice, "1", "2", "3", "4")
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)[:2]})
	before := check.Value(db.Store.Acquire(t.Context(), alice, "a/1", true))(t).State
	check.Equal(t, "window, open and room before", [3]int{int(before.Window), len(before.Open), before.RoomInWindow()}, [3]int{3, 2, 1})
	token, changed, err := db.Store.UpdateSubmitter(t.Context(), window(1))
	if err != nil || !changed || token <= before.Lease.Token {
		t.Fatalf("narrow: got token %d, %t, %v; want one above %d", token, changed, err, before.Lease.Token)
	}
	done, err := db.Store.Commit(t.Context(), txmanager.Commit{Lease: before.Lease, Allocations: allocations(before, true)[:1]})
	if err == nil || done.Allocated != 0 {
		t.Errorf("the holder allocates by the window before: got %d, %v; want it fenced", done.Allocated, err)
	}
	after := take(t, db, alice, "b/1")
	check.Equal(t, "window, open and room, narrowed", [3]int{int(after.Window), len(after.Open), after.RoomInWindow()}, [3]int{1, 2, 0})
	if _, changed, err := db.Store.UpdateSubmitter(t.Context(), window(1)); changed || err != nil {
		t.Errorf("the same again: got changed %t, %v", changed, err)
	}
	check.OK(t)(db.Store.UpdateSubmitter(t.Context(), window(4)))
	check.Equal(t, "room, once widened", take(t, db, alice, "c/1").RoomInWindow(), 2)
	narrower := window(5)
	narrower.OnlyNarrower = true
	check.Err(t, "wider, where only narrower is allowed", store.ErrNotTighter)(db.Store.UpdateSubmitter(t.Context(), narrower))
	unknown := window(1)
	unknown.Submitter = "eip155:1337:0x0000000000000000000000000000000000000ca0"
	check.Err(t, "no such submitter", store.ErrUnknownSubmitter)(db.Store.UpdateSubmitter(t.Context(), unknown))
	check.Equal(t, "the widest window", check.Value(db.Store.LostNonces(t.Context(), alice))(t).Window, 4)
	check.OK(t)(db.Store.UpdateSubmitter(t.Context(), window(1)))
	check.Equal(t, "the widest window, once narrowed", check.Value(db.Store.LostNonces(t.Context(), alice))(t).Window, 4)
}

// A payer's window is never wider than the widest that a backup can know.
func TestPayerWindowNeverWidens(t *testing.T) {
	t.Parallel()
	db := registered(t, 5, alice)
	db.Run(t, `update submitter set callers = '{transfer}'`)
	check.OK(t)(db.Store.UpdateSubmitter(t.Context(), window(1)))
	check.OK(t)(db.Store.UpdateSubmitter(t.Context(), window(5)))
	check.Err(t, "wider", store.PayerWindowError{Widest: 5})(db.Store.UpdateSubmitter(t.Context(), window(6)))
}

// After a restore a payer's nonces must be filled, unless it was retired before: then a lost database
// has signed nothing for it.
func TestRetiredPayerLostNothing(t *testing.T) {
	t.Parallel()
	db := registered(t, 5, alice, bob)
	db.Run(t, `update submitter set callers = '{transfer}'`)
	check.OK(t)(db.Store.Retire(t.Context(), retirement(bob)))
	db.Run(t, `insert into identity_change (system_identifier, timeline_id, by, reason) values (1, 1, 'ann', 'restored')`)
	for sub, retired := range map[txmanager.Submitter]bool{alice: false, bob: true} {
		if lost := check.Value(db.Store.LostNonces(t.Context(), sub))(t); !lost.Payer || lost.Retired != retired || lost.Restored == retired {
			t.Errorf("%s: got %+v; want retired %t, restored %t", sub, lost, retired, !retired)
		}
	}
}

// Each change is recorded with both values, in the audit chain too, and is listed newest first.
func TestChangesAreListed(t *testing.T) {
	t.Parallel()
	db := at(t, "sub:1")
	name := window(7)
	name.Name = new("hot wallet")
	check.OK(t)(db.Store.UpdateSubmitter(t.Context(), name))
	check.OK(t)(db.Store.UpdateSubmitter(t.Context(), store.SubmitterUpdate{Submitter: alice, Name: new(""), By: "ben", Reason: "s"}))
	check.OK(t)(db.Store.PutCallers(t.Context(), change([]string{"sub:1", "sub:2"})))
	check.OK(t)(db.Store.SetStatus(t.Context(), store.Suspension{Submitter: alice, Suspend: true, By: "ann", Reason: "r"}))
	var got []string
	below, pages := int64(1)<<62, 0
	for {
		page := check.Value(db.Store.Changes(t.Context(), alice, below, 2))(t)
		pages++
		for _, c := range page {
			line := fmt.Sprint(c.Action, " ", c.By, " ", c.Reason)
			if c.ToMaxInFlight != nil {
				line += fmt.Sprintf(" %d>%d", *c.FromMaxInFlight, *c.ToMaxInFlight)
			}
			if c.ToName != nil {
				line += fmt.Sprintf(" %q>%q", *c.FromName, *c.ToName)
			}
			if c.ToCallers != nil {
				line += fmt.Sprint(" ", c.FromCallers, ">", c.ToCallers)
			}
			got, below = append(got, line), c.ID
		}
		if len(page) < 2 {
			break
		}
	}
	check.Equal(t, "pages", pages, 3)
	check.Equal(t, "changes", strings.Join(got, "; "), `SUSPEND ann r; CALLERS email:ann@example.com a test [sub:1]>[sub:1 sub:2]; UPDATE ben s "hot wallet">""; UPDATE ann r 10>7 "">"hot wallet"`)
	if audit, err := db.Store.VerifyAudit(t.Context(), nil, nil); err != nil || len(audit.Findings) != 0 || audit.Links != 4 {
		t.Errorf("the audit chain: got %+v, %v; want 4 links and no finding", audit, err)
	}
	check.Err(t, "no such submitter", store.ErrUnknownSubmitter)(db.Store.Changes(t.Context(), "eip155:1337:0x0000000000000000000000000000000000000ca0", below, 1))
}
