package store_test

import (
	"testing"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A release by resync draws a name epoch, and the process that released names its next
// task by it: no load of the submitter follows before that. Another process has it with
// its next create. Each release draws another one, and a resume draws none.
func TestReleaseDrawsANameEpoch(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	other := storetest.Again(t, db)
	db.Register(t, alice, 1)
	if got := db.NameEpoch(alice); got != "" {
		t.Errorf("before any release: got %q, want none", got)
	}
	lost(t, db, alice, nil, 5)
	first := value[string](t, db, `select name_epoch from submitter_lease where submitter = $1`, alice)
	if got := db.NameEpoch(alice); len(first) != 8 || got != first {
		t.Errorf("the process that released: got %q, want %q, of 8 characters", got, first)
	}
	if _, err := other.Create(t.Context(), intent(alice, "next"), 10); err != nil || other.NameEpoch(alice) != first {
		t.Errorf("another process after a create: got %q, %v; want %q", other.NameEpoch(alice), err, first)
	}

	run(t, db, `insert into protect_incident (submitter, incident, evidence) values ($1, 2, '{}')`, alice)
	resume := txmanager.ReleaseRequest{Incident: 2, Mode: txmanager.Resume, By: "ann", Reason: "a false alarm"}
	write(t, db, txmanager.Commit{Lease: take(t, db, alice, "release/2").Lease, LeaseEnd: txmanager.ReleaseUnlessRerun, Cursor: txmanager.CursorChange{ClearSuspected: true, CloseIncident: &resume}})
	if got := db.NameEpoch(alice); got != first {
		t.Errorf("after a resume: got %q, want %q as before", got, first)
	}
	run(t, db, `insert into protect_incident (submitter, incident, evidence) values ($1, 3, '{}')`, alice)
	again := txmanager.ReleaseRequest{Incident: 3, Mode: txmanager.Resync, By: "ann", Reason: "another loss", Count: 1, Matching: true}
	write(t, db, txmanager.Commit{Lease: take(t, db, alice, "release/3").Lease, LeaseEnd: txmanager.ReleaseUnlessRerun, Cursor: txmanager.CursorChange{ClearSuspected: true, CloseIncident: &again}})
	if got := db.NameEpoch(alice); got == first || got != value[string](t, db, `select name_epoch from submitter_lease where submitter = $1`, alice) {
		t.Errorf("after the next resync: got %q, want what was drawn, and another than %q", got, first)
	}
	others := `select string_agg(coalesce(released ->> 'others', 'named'), ' ' order by incident) from protect_incident where submitter = $1 and mode = 'resync'`
	if got := value[string](t, db, others, alice); got != "named matching" {
		t.Errorf("how the nonces without a name were judged, on record: got %q, want \"named matching\"", got)
	}
}

// A process in which an operator or a caller decides names its task by the current name epoch.
// That also holds if another process has released the submitter since this process last loaded
// it.
func TestADecisionBringsTheNameEpoch(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 8)
	lost(t, db, alice, nil, 5, 6)
	five, _ := mustCreate(t, db, worth(alice, "five", 5))
	six, _ := mustCreate(t, db, worth(alice, "six", 6))
	unknown, _ := mustCreate(t, db, handled(alice, "unknown"))
	want := value[string](t, db, `select name_epoch from submitter_lease where submitter = $1`, alice)
	zero, one := uint64(0), uint64(1)
	for _, c := range []struct {
		what   string
		decide func(storetest.Bundle) error
	}{
		{"a match", func(s storetest.Bundle) error {
			_, err := s.MatchHold(t.Context(), store.HoldDecision{Submitter: alice, Nonce: &zero, By: "ann", Reason: "r"}, five.TxID)
			return err
		}},
		{"proceed", func(s storetest.Bundle) error {
			_, err := s.Proceed(t.Context(), unknown.TxID, "ann", "r")
			return err
		}},
		{"proceed of all", func(s storetest.Bundle) error {
			_, err := s.ProceedAll(t.Context(), alice, unknown.TxID, "ann", "r", 10)
			return err
		}},
		{"a write-off", func(s storetest.Bundle) error {
			_, err := s.WriteOff(t.Context(), store.HoldDecision{Submitter: alice, Nonce: &one, Limit: 1, By: "ann", Reason: "r"})
			return err
		}},
		{"a cancel", func(s storetest.Bundle) error {
			_, err := s.RecordDecision(t.Context(), store.Decision{TxID: six.TxID, By: store.Viewer{Caller: "shop"}, Action: txmanager.ActionCancel, Reason: "r"})
			return err
		}},
		{"a suspension", func(s storetest.Bundle) error {
			_, err := s.SetStatus(t.Context(), store.Suspension{Submitter: alice, Suspend: true, By: "ann", Reason: "r"})
			return err
		}},
	} {
		other := storetest.Again(t, db)
		if err := c.decide(other); err != nil || other.NameEpoch(alice) != want {
			t.Errorf("%s: got %q, %v; want %q", c.what, other.NameEpoch(alice), err, want)
		}
	}
}
