package transfers_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
)

// An acknowledged transfer raises no alert until its time, while others do. After that, or in another
// state, it does again. By, reason and until are recorded.
func TestAcknowledgedAlertIsSilentUntilItsTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rules := transfer.DefaultRules()
	late := func() transfer.Transfer {
		x := r.created(t, request(""))
		r.run(t, `select move_transfer($1, '{0,10,20,30}', null)`, x.ReqID)
		r.run(t, `update transfers_tb set state_at = state_at - interval '2 minutes' where req_id = $1`, x.ReqID)
		return x
	}
	alarming := func(what string, pending, refunds int) {
		t.Helper()
		p, f, err := r.Alarming(t.Context(), rules, 10)
		if err != nil || p.Count != pending || len(p.Newest) != pending || f.Count != refunds || len(f.Newest) != refunds {
			t.Errorf("%s: got %d late and %d refunds, %v; want %d and %d", what, p.Count, f.Count, err, pending, refunds)
		}
	}
	x, _ := late(), late()
	alarming("before", 2, 0)
	order := transfer.RequestedAction{ReqID: x.ReqID, By: "ann", Reason: "I repair the core"}
	for _, until := range []time.Time{time.Now().Add(-time.Minute), time.Now().Add(31 * 24 * time.Hour)} {
		if err := r.Acknowledge(t.Context(), order, until); !errors.Is(err, transfers.ErrUntil) {
			t.Errorf("until %s: got %v, want %v", until, err, transfers.ErrUntil)
		}
	}
	if err := r.Acknowledge(t.Context(), transfer.RequestedAction{ReqID: r.created(t, request("")).ReqID, By: "ann", Reason: "r"}, time.Now().Add(time.Hour)); !errors.Is(err, transfers.ErrNothingToAcknowledge) {
		t.Errorf("in INIT: got %v, want %v", err, transfers.ErrNothingToAcknowledge)
	}
	if err := r.Acknowledge(t.Context(), transfer.RequestedAction{ReqID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", By: "ann", Reason: "r"}, time.Now().Add(time.Hour)); !errors.Is(err, transfer.ErrNotFound) {
		t.Errorf("none: got %v, want %v", err, transfer.ErrNotFound)
	}
	if err := r.Acknowledge(t.Context(), order, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	alarming("acknowledged", 1, 0)
	story, err := r.Why(t.Context(), x.ReqID)
	if err != nil || len(story.Acknowledged) != 1 || story.Acknowledged[0].By != "ann" || story.Acknowledged[0].Reason != order.Reason || story.Acknowledged[0].State != transfer.TargetPending {
		t.Errorf("on record: got %+v, %v", story.Acknowledged, err)
	}
	r.run(t, `alter table transfer_acknowledgement disable trigger user`)
	r.run(t, `update transfer_acknowledgement set at = at - interval '90 seconds', until = clock_timestamp() - interval '1 second'`)
	alarming("once its time is over", 2, 0)
	r.run(t, `update transfer_acknowledgement set until = clock_timestamp() + interval '1 hour'`)
	alarming("as before", 1, 0)
	r.run(t, `select move_transfer($1, '{30,-20}', 'ACCOUNT_DISABLED')`, x.ReqID)
	r.run(t, `update transfers_tb set failures = 3, retry_count = 3, last_unknown = 'x' where req_id = $1`, x.ReqID)
	alarming("in another state", 1, 1)
	if err := r.Acknowledge(t.Context(), order, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	alarming("acknowledged there, too", 1, 0)
}

// An acknowledgement before a restore does not count after it: a payout may be in doubt now, and wait
// for an operator.
func TestRestoreEndsAnAcknowledgement(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	x := r.created(t, request(""))
	r.run(t, `select move_transfer($1, '{0,10,20,30}', null)`, x.ReqID)
	r.run(t, `update transfers_tb set state_at = state_at - interval '2 minutes' where req_id = $1`, x.ReqID)
	alarming := func(what string, want int) {
		t.Helper()
		if p, _, err := r.Alarming(t.Context(), transfer.DefaultRules(), 10); err != nil || p.Count != want {
			t.Errorf("%s: got %d late, %v; want %d", what, p.Count, err, want)
		}
	}
	acknowledge := func() {
		t.Helper()
		if err := r.Acknowledge(t.Context(), transfer.RequestedAction{ReqID: x.ReqID, By: "ann", Reason: "I repair the core"}, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	acknowledge()
	alarming("acknowledged", 0)
	r.run(t, `insert into identity_change (system_identifier, timeline_id, by, reason) values (1, 1, 'ann', 'restored')`)
	alarming("after a restore", 1)
	acknowledge()
	alarming("acknowledged again", 0)
}
