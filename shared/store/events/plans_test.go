package events_test

import (
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store/events"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// Beside 50,000 submitters without waiting events, and as many tests, the state of an endpoint is read from few blocks.
func TestTheStateOfAnEndpointReadsWhatWaits(t *testing.T) {
	t.Parallel()
	db := storetest.NewClone(t)
	for _, statement := range []string{
		`insert into event_delivery_queue (submitter, endpoint, delivered, last, oldest_at)
			select 'eip155:1337:0x' || lpad(to_hex(n), 40, '0'), 'hook', 1, case when n % 500 = 0 then 2 else 1 end, now() from generate_series(1, 50000) n`,
		`insert into webhook_act (endpoint, action, by, reason) select 'hook', 'TEST', 'ann', 'r' from generate_series(1, 50000)`,
		`vacuum analyze event_delivery_queue, webhook_act`,
	} {
		check.OK(t)(db.DB.Exec(t.Context(), statement))
	}
	for name, args := range map[string][]any{
		"countLateQueues": {"hook", events.MaxBacklog + 1}, "countLateEvents": {"hook", events.MaxBacklog + 1}, "oldestLate": {"hook"}, "endpointState": {"hook"}, "lastTest": {"hook"},
	} {
		if got := storetest.Blocks(t, db.DB, events.PageStatements[name], args...); got > 500 {
			t.Errorf("%s: read %d blocks, want at most 500", name, got)
		}
	}
}
