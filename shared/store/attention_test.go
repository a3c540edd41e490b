package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// attentionLimits are limits of an hour for BALANCE, and of none for other causes.
func attentionLimits() store.AttentionLimits {
	return store.AttentionLimits{
		Waits:     []store.WaitLimit{{Cause: txmanager.WaitBalance, Limit: time.Hour}, {Chain: "eip155:7", Cause: txmanager.WaitBalance, Limit: time.Second}},
		Transfers: transfer.DefaultRules(), Endpoints: []string{"shop"},
	}
}

// attentionOf reads the whole list by pages of one size.
func attentionOf(t *testing.T, db storetest.Bundle, size int) (all []string) {
	t.Helper()
	var after store.AttentionPlace
	for {
		page := check.Value(db.Attention(t.Context(), attentionLimits(), after, size))(t)
		for _, i := range page {
			all = append(all, fmt.Sprintf("%s overdue=%t %s", i.Kind, i.Overdue, i.Submitter))
			if i.Place.Since.IsZero() || i.Place.Since.After(time.Now().Add(time.Minute)) {
				t.Errorf("%s: since %s, want a time in the past", i.Kind, i.Place.Since)
			}
			after = i.Place
		}
		if len(page) < size {
			return all
		}
	}
}

// What needs a person is one list, the most urgent first, whatever the size of a page. It ends with the waits
// that are below their limits.
func TestAttention(t *testing.T) {
	t.Parallel()
	db := registered(t, 2, alice, bob, numbered(1), numbered(2), numbered(3))
	if got := attentionOf(t, db, 10); len(got) != 0 {
		t.Errorf("a sound deployment: got %v, want nothing", got)
	}
	for _, sub := range []txmanager.Submitter{bob, numbered(1), numbered(2), numbered(3)} {
		postAll(t, db, sub, "1", "2")
	}
	waitsFor(t, db, numbered(1), txmanager.WaitBalance)
	waitsFor(t, db, numbered(2), txmanager.WaitBalance)
	run(t, db, `update managed_tx set waiting_since = now() - interval '2 hours' where submitter = $1 and wait_cause is not null`, numbered(2))
	sendAll(t, db, bob)
	run(t, db, `update managed_tx set state = 'STUCK' where submitter = $1 and nonce = 0`, bob)
	run(t, db, `update managed_tx set wait_cause = 'GAS_BUMP', waiting_since = now() where submitter = $1 and nonce = 1`, bob)
	run(t, db, `update managed_tx set held = true where submitter = $1`, numbered(3))
	run(t, db, openIncident, alice)
	run(t, db, `insert into transfer_halt (scope, evidence) values ('all', '{"what": "a test"}')`)
	run(t, db, `insert into event_delivery_queue (submitter, endpoint, delivered, last, oldest_at)
		select submitter, endpoint, 1, 2, now() - interval '1 hour' from submitter, unnest(array['shop', 'former']) as endpoint`)
	run(t, db, newProposal+`'1', `+isOpen)
	run(t, db, strings.Replace(newProposal, `now() + interval '1 hour'`, `now()`, 1)+`'2', `+isApproved)
	want := []string{
		"PROTECT overdue=true " + string(alice), "HALT overdue=true ", "STUCK overdue=true " + string(bob), "BLOCKED overdue=true " + string(numbered(2)),
		"HELD overdue=true " + string(numbered(3)), "ENDPOINT overdue=true ", "PROPOSAL overdue=true ",
		"BLOCKED overdue=false " + string(numbered(1)), "BLOCKED overdue=false " + string(bob),
	}
	for _, size := range []int{1, 2, 100} {
		check.Same(t, fmt.Sprint("by pages of ", size), attentionOf(t, db, size), want)
	}
	counted := map[string]int{}
	for _, c := range check.Value(db.Overview(t.Context(), attentionLimits()))(t).Attention {
		counted[fmt.Sprintf("%s %t", c.Kind, c.Overdue)] = c.Count
	}
	check.Same(t, "counts", counted, map[string]int{"PROTECT true": 1, "HALT true": 1, "STUCK true": 1, "BLOCKED true": 1, "BLOCKED false": 2, "HELD true": 1, "ENDPOINT true": 1, "PROPOSAL true": 1})
	run(t, db, `update database_identity set timeline_id = -1`)
	if got := attentionOf(t, db, 100); len(got) == 0 || got[0] != "DATABASE overdue=true " {
		t.Errorf("in a foreign database: got %v, want DATABASE first", got)
	}
}

// The limit of a wait is that of its chain, or else of its cause.
func TestAttentionLimitOfAChain(t *testing.T) {
	t.Parallel()
	const slow = txmanager.Submitter("eip155:7:0x0000000000000000000000000000000000000b0b")
	db := registered(t, 1, alice, slow)
	for _, sub := range []txmanager.Submitter{alice, slow} {
		post(t, db, sub, "1")
		waitsFor(t, db, sub, txmanager.WaitBalance)
	}
	run(t, db, `update managed_tx set waiting_since = now() - interval '1 minute'`)
	check.Same(t, "list", attentionOf(t, db, 100), []string{"BLOCKED overdue=true " + string(slow), "BLOCKED overdue=false " + string(alice)})
}
