package queues

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// The rows of the open transactions are in the same order each time, whatever the order of the answer.
func TestOpenTransactionsHaveAnOrder(t *testing.T) {
	t.Parallel()
	states := []client.StateCount{{State: client.Tracking}, {State: client.Queued}, {State: client.Stuck}, {State: client.Protect}, {State: client.InFlight}, {State: client.Submitted}}
	slices.SortFunc(states, byProgress)
	var got []client.TxState
	for _, s := range states {
		got = append(got, s.State)
	}
	check.Same(t, "states", got, []client.TxState{"PROTECT", "STUCK", "TRACKING", "SUBMITTED", "IN_FLIGHT", "QUEUED"})
}

// The light is green only while the sweep and the check of conservation look for faults.
func TestLightNeedsTheSweepAndTheCheck(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *time.Time { return new(now.Add(-d)) }
	checked := func(d time.Duration) part[client.Conservation] {
		return part[client.Conservation]{Value: client.Conservation{LastCheck: &client.LastCheck{At: *ago(d), Result: "ok"}}}
	}
	for name, c := range map[string]struct {
		swept        *time.Time
		conservation part[client.Conservation]
		attention    []client.AttentionCount
		tone, text   string
	}{
		"all runs":            {ago(90 * time.Second), checked(time.Minute), nil, "ok", "Nothing needs a person"},
		"a full check runs":   {ago(90 * time.Second), checked(35 * time.Minute), nil, "ok", "Nothing needs a person"},
		"no sweep":            {nil, checked(time.Minute), nil, "warn", "the sweep does not run"},
		"a dead sweep":        {ago(20 * time.Minute), checked(time.Minute), nil, "warn", "no minute for 20 minutes"},
		"no check":            {ago(time.Minute), part[client.Conservation]{}, nil, "warn", "No check of conservation has come to its end yet"},
		"an old check":        {ago(time.Minute), checked(2 * time.Hour), nil, "warn", "for 120 minutes"},
		"no ledgers":          {ago(time.Minute), part[client.Conservation]{Err: &client.Problem{Status: http.StatusNotFound}}, nil, "ok", "Nothing needs a person"},
		"the check unread":    {ago(time.Minute), part[client.Conservation]{Err: errors.New("down")}, nil, "warn", "got no answer"},
		"a fault comes first": {nil, part[client.Conservation]{}, []client.AttentionCount{{Kind: "STUCK", Overdue: true, Count: 2}}, "bad", "2 things stand still"},
	} {
		o := overview{Overview: client.Overview{At: now, RatesUpTo: c.swept, Attention: c.attention}, Conservation: c.conservation}
		o.count()
		if got := o.lightOf(); got.Tone != c.tone || !strings.Contains(got.Text, c.text) {
			t.Errorf("%s: got %+v, want %s with %q", name, got, c.tone, c.text)
		}
	}
}
