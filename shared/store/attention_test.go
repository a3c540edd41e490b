package store_test

import (
	"fmt"
	"slices"
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
		Transfers: transfer.DefaultRules(), Endpoints: []string{"shop", "till"},
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
			if i.Since.IsZero() || i.Since.After(time.Now().Add(time.Minute)) {
				t.Errorf("%s: since %s, want a time in the past", i.Kind, i.Since)
			}
			after = i.AttentionPlace
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
	db.Run(t, `update managed_tx set waiting_since = now() - interval '2 hours' where submitter = $1 and wait_cause is not null`, numbered(2))
	sendAll(t, db, bob)
	db.Run(t, `update managed_tx set state = 'STUCK' where submitter = $1 and nonce = 0`, bob)
	db.Run(t, `update managed_tx set wait_cause = 'GAS_BUMP', waiting_since = now() where submitter = $1 and nonce = 1`, bob)
	db.Run(t, `update managed_tx set held = true where submitter = $1`, numbered(3))
	db.Run(t, openIncident, alice)
	db.Run(t, `insert into transfer_halt (scope, evidence) values ('all', '{"what": "a test"}')`)
	db.Run(t, `insert into event_delivery_queue (submitter, endpoint, delivered, last, oldest_at)
		select submitter, endpoint, 1, 2, now() - interval '1 hour' from submitter, unnest(array['shop', 'till', 'former']) as endpoint`)
	db.Run(t, `insert into event_endpoint (endpoint, paused_at, paused_by, pause_reason) values ('till', now(), 'ann', 'a test'), ('former', now(), 'ann', 'a test'), ('shop', null, null, null)`)
	db.Run(t, newProposal+`'1', `+isOpen)
	db.Run(t, strings.Replace(newProposal, `now() + interval '1 hour'`, `now()`, 1)+`'2', `+isApproved)
	want := []string{
		"PROTECT overdue=true " + string(alice), "HALT overdue=true ", "STUCK overdue=true " + string(bob), "BLOCKED overdue=true " + string(numbered(2)),
		"HELD overdue=true " + string(numbered(3)), "ENDPOINT overdue=true ", "PAUSED overdue=true ", "PROPOSAL overdue=true ",
		"BLOCKED overdue=false " + string(numbered(1)), "BLOCKED overdue=false " + string(bob),
	}
	for _, size := range []int{1, 2, 100} {
		check.Same(t, fmt.Sprint("by pages of ", size), attentionOf(t, db, size), want)
	}
	counted := map[string]int{}
	for _, c := range check.Value(db.Overview(t.Context(), attentionLimits()))(t).Attention {
		counted[fmt.Sprintf("%s %t", c.Kind, c.Overdue)] = c.Count
	}
	check.Same(t, "counts", counted, map[string]int{"PROTECT true": 1, "HALT true": 1, "STUCK true": 1, "BLOCKED true": 1, "BLOCKED false": 2, "HELD true": 1, "ENDPOINT true": 1, "PAUSED true": 1, "PROPOSAL true": 1})
	db.Run(t, `update database_identity set timeline_id = -1`)
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
	db.Run(t, `update managed_tx set waiting_since = now() - interval '1 minute'`)
	check.Same(t, "list", attentionOf(t, db, 100), []string{"BLOCKED overdue=true " + string(slow), "BLOCKED overdue=false " + string(alice)})
}

// Money that does not go on needs a person: a payout without a proof, in doubt or without a transaction, a late
// transfer, a refund that fails, and a violation. A transfer that an operator handles by hand does not.
func TestAttentionOfMoney(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	const unproved, inDoubt, notPosted, queued, late, refund, handled = "01ARZ3NDEKTSV4RRFFQ69G5FA1", "01ARZ3NDEKTSV4RRFFQ69G5FA2", "01ARZ3NDEKTSV4RRFFQ69G5FA3",
		"01ARZ3NDEKTSV4RRFFQ69G5FA4", "01ARZ3NDEKTSV4RRFFQ69G5FA5", "01ARZ3NDEKTSV4RRFFQ69G5FA6", "01ARZ3NDEKTSV4RRFFQ69G5FA7"
	postAll(t, db, alice, unproved, queued)
	sendAll(t, db, alice)
	moveAll(t, db, alice, inBlocks(true, block(7, 1)))
	db.Run(t, `update managed_tx set state = 'CONFIRMED', sub_state = null, confirmed_at = now() where open`)
	conn := db.Connect(t)
	check.Value(conn.Exec(t.Context(), `set session_replication_role = replica`))(t) // transfers begin in INIT
	conn.Do(`update managed_tx set updated_at = now() - interval '3 minutes' where state = 'CONFIRMED'`)
	conn.Do(`insert into assets_tb (asset_id, asset, precision, min_transfer_amount, max_transfer_amount) values (1, 'USDT', 2, 1, 9)`)
	pays := func(reqID, unknown string) {
		t.Helper()
		conn.Do(`insert into transfers_tb (req_id, user_id, asset_id, amount, precision, transfer_type, source_type, state, state_at, failures, retry_count, last_unknown,
			payout_submitter, payout_chain_id, payout_address, payout_base_units, payout_payload)
			values ($1, 7, 1, 5, 2, 3, 1, 30, now() - interval '3 minutes', 1, 1, nullif($2, ''), $3, 1337, '0x' || repeat('a', 40), 5, '{}')`, reqID, unknown, alice)
	}
	moves := func(reqID string, state, failures int, reason any) {
		t.Helper()
		conn.Do(`insert into transfers_tb (req_id, user_id, asset_id, amount, precision, transfer_type, source_type, state, state_at, failures, retry_count, error_message)
			values ($1, 7, 1, 5, 2, 1, 1, $2, now() - interval '3 minutes', $3, $3, $4)`, reqID, state, failures, reason)
	}
	pays(inDoubt, "")
	conn.Do(`insert into identity_change (system_identifier, timeline_id, by, reason) values (1, 1, 'o', 'r')`)
	pays(unproved, "CONFIRMED without proof of payment")
	pays(notPosted, "the payer's policy does not allow the payout")
	pays(queued, "pending")
	moves(late, 30, 0, nil)
	moves(refund, -20, 3, "ACCOUNT_DISABLED")
	moves(handled, 30, 0, nil)
	conn.Do(`insert into transfer_acknowledgement (transfer_id, state, by, reason, until) select transfer_id, state, 'o', 'r', now() + interval '1 hour' from transfers_tb where req_id = $1`, handled)
	conn.Do(`insert into conservation_finding (generation, kind, user_id, asset_id, expected, got, evidence) values (1, 'BALANCE', 7, 1, '5', '4', '{}')`)
	conn.Do(`insert into conservation_standing (key, finding_id) select 'k', finding_id from conservation_finding`)
	conn.Do(`insert into account_act (kind, request_id, ledger, user_id, asset_id, units, by, reason, at, unknown) values ('DEPOSIT', 'd', 'SPOT', 7, 1, 5, 'o', 'r', now() - interval '11 minutes', 'no answer')`)
	conn.Do(`insert into foreign_hold (submitter, nonce, call_digest) values ($1, 7, 'x')`, alice)
	conn.Do(`insert into database_move (mark, from_system, from_timeline, by, reason) values ('m', 1, 1, 'o', 'a test')`)
	var got []string
	for _, i := range check.Value(db.Attention(t.Context(), attentionLimits(), store.AttentionPlace{}, 100))(t) {
		got = append(got, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s", i.Kind, i.ReqID, i.Name, i.Detail)), " "))
	}
	slices.Sort(got[2:5]) // of one rank and about one time
	check.Same(t, "list", got, []string{
		"MOVE a test", "FINDING BALANCE expected 5, got 4", "PAYOUT " + unproved + " UNPROVED CONFIRMED without proof of payment",
		"PAYOUT " + inDoubt + " IN_DOUBT", "PAYOUT " + notPosted + " NOT_POSTED the payer's policy does not allow the payout",
		"TRANSFER " + late, "REFUND " + refund, "ACCOUNT 7/USDT no answer", "FOREIGN", "BLOCKED NEXT",
	})
}
