package acceptance

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/txmanager"
)

var allFeatures = withSettings(nodesQuick, map[string]string{
	"FENCEPOST_EVENTS_MODE": "mq_outbox", "FENCEPOST_FEES_HISTORY_ENABLED": "true", "FENCEPOST_MEMPOOL_DIAGNOSE_ENABLED": "true",
	"FENCEPOST_GASBUMP_ENABLED": "true", "FENCEPOST_GASBUMP_MIN_INTERVAL": "1s", "FENCEPOST_TELEMETRY_BALANCES": "20",
	"FENCEPOST_HOOKS_ENABLED": "true", "FENCEPOST_HOOKS_RESERVATION_TIMEOUT": "20s",
})

// wantAllEvents waits until all events are delivered, and checks for each transaction that no event is
// missing and that its end is right.
func (b bench) wantAllEvents(t *testing.T) {
	t.Helper()
	const untold = `select (select count(*) from event_outbox) + (select count(*) from event_delivery_queue where pending)`
	b.swept(t, "not all events are delivered", func() bool { return b.count(untold) == 0 })
	want, counted := make(map[string]string), make(map[string]int)
	rows := must(b.DB.Query(b.ctx, `select tx_id, state, event_sequence from managed_tx`))(t)
	defer rows.Close()
	for rows.Next() {
		var id, state string
		var n int
		check(t, rows.Scan(&id, &state, &n))
		counted[id] = n
		want[id] = map[string]string{"CONFIRMED": string(txmanager.TxConfirmed), "FAILED": string(txmanager.TxFailed)}[state]
	}
	kept := b.replay(t, stack.OperatorAccount)
	got := make(map[string]int)
	for _, e := range kept {
		got[e.TxID]++
	}
	same(t, "events of each transaction, as counted", got, counted)
	same(t, "ends that are kept", wantComplete(t, "replay", kept), want)
	same(t, "ends that were published", wantComplete(t, "Pub/Sub", b.published(t)), want)
}

// With every feature on, three nodes and two chains, transactions reach every possible end. No SQL
// statement fails, each transaction ends as it should, and no event is missing.
func TestAllOptionalFeaturesTogether(t *testing.T) {
	t.Parallel()
	b := setup(t, withPayroll(t, stack.Options{Nodes: 3, TwoChains: true, Window: 4, Submitters: 5, Settings: allFeatures}))
	s := b.Submitters()
	want := map[txmanager.Submitter]int{b.OnSecond()[0]: 2, b.OnSecond()[1]: 1}
	for on, n := range want {
		b.postMany(t, on, n)
	}
	maps.Copy(want, map[txmanager.Submitter]int{s[0]: b.lends(t, s[0]), s[1]: b.pays(t, s[1]), s[2]: b.refuses(t, s[2])})
	b.finish(t)
	b.Chain.StopMining()
	want[s[3]], want[s[4]] = b.outbids(t, s[3], s[4])
	want[s[0]] += b.loses(t, s[0], uint64(want[s[0]]))
	b.finish(t)
	b.wantAllContiguous(t, want)
	b.wantAllEvents(t)
	if b.Log.Has("are not counted") {
		t.Error("a statement was refused: its events were not counted")
	}
	if !slices.ContainsFunc(b.Nodes, func(n *rpcproxy.Proxy) bool { return n.Calls("eth_feeHistory") > 0 }) {
		t.Error("fee history: got no call")
	}
	if n := b.count(`select count(*) from managed_tx where last_mempool_diag is not null`); n == 0 {
		t.Error("diagnoses: got none")
	}
}

// lends reserves nonces: one is used, one is recycled to an intent, and one is not marked in time.
func (b bench) lends(t *testing.T, s txmanager.Submitter) (nonces int) {
	t.Helper()
	lent := b.allocate(t, s, "mover", "m-0", "m-1", "m-2")
	taker := b.postUntilAnswered(t, transfer(s, "taker"))
	b.hookUntilAnswered(t, "recyclable", lent[0].TxID, "mover", "not needed")
	b.uses(t, lent[1])
	b.finish(t)
	b.wantFate(t, "given back", lent[0].TxID, "FAILED/CANCELLED", -1)
	b.wantFate(t, "its taker", taker, "CONFIRMED", 0)
	b.wantFate(t, "used", lent[1].TxID, "CONFIRMED", 1)
	b.wantFate(t, "not marked", lent[2].TxID, "FAILED/PLACEHOLDER", 2)
	return 3
}

// pays makes a handler pay, sign, fail, revert, and be refused by the policy.
func (b bench) pays(t *testing.T, s txmanager.Submitter) (nonces int) {
	t.Helper()
	app := b.payer(t)
	ends := map[string]string{}
	for how, end := range map[string]string{"": "CONFIRMED", "signs": "CONFIRMED", "fails": "FAILED/PLACEHOLDER", "reverts": "FAILED/PLACEHOLDER"} {
		ends[b.pay(t, app, s, "wage "+how, how)] = end
	}
	b.finish(t)
	_, operator := b.clients(t)
	must(operator.SetPolicy(b.ctx, string(s), client.Policy{MaxValue: "4"}, "no wages"))(t)
	ends[b.pay(t, app, s, "refused", "")] = "FAILED/PLACEHOLDER"
	b.finish(t)
	for id, end := range ends {
		_, r := b.ask(t, stack.OperatorAccount, id)
		b.wantFate(t, "a wage", id, end, int(*r.Nonce))
	}
	return len(ends)
}

// refuses makes one intent rejected in preparation and one cancelled in the queue.
func (b bench) refuses(t *testing.T, s txmanager.Submitter) (nonces int) {
	t.Helper()
	b.Chain.StopMining()
	for i := range 4 { // the window
		b.postUntilAnswered(t, transfer(s, fmt.Sprintf("r-%d", i)))
	}
	b.await(t, s, txmanager.Tracking, 4)
	queued := b.postUntilAnswered(t, transfer(s, "regretted"))
	reverts := transfer(s, "reverts")
	reverts["payload"] = map[string]any{"data": "0xfe"}
	rejected := b.postUntilAnswered(t, reverts)
	if status, c := b.cancel(t, queued); status != http.StatusOK || c.Outcome != "CANCELLED" {
		t.Errorf("cancel in the queue: got %d %+v, want CANCELLED", status, c)
	}
	b.Chain.StartMining()
	b.finish(t)
	b.wantFate(t, "cancelled in the queue", queued, "FAILED/CANCELLED", -1)
	b.wantFate(t, "would revert", rejected, "FAILED/REJECTED", -1)
	return 4
}

// outbids makes a transaction outbid and mined by its first version, and by a later one after a reorg.
// It also makes a placeholder outbid by a placeholder.
func (b bench) outbids(t *testing.T, s, other txmanager.Submitter) (nonces, others int) {
	t.Helper()
	id := b.postUntilAnswered(t, transfer(s, "outbid"))
	regretted := b.postUntilAnswered(t, transfer(other, "regretted"))
	b.versions(t, id, "ORIGINAL", "BUMP")
	b.await(t, other, txmanager.Tracking, 1)
	b.cancel(t, regretted)
	b.until(t, "a placeholder was not outbid", func() bool {
		return b.count(`select count(*) from tx_version where tx_id = $1 and kind = 'PLACEHOLDER'`, regretted) > 1
	})
	check(t, b.Chain.MineExactly(b.raw(t, id, "ORIGINAL")))
	b.included(t, id, 1)
	check(t, b.Chain.Reorg(1, nil, [][]byte{b.raw(t, id, "BUMP")}))
	b.included(t, id, 2)
	b.Chain.StartMining()
	b.await(t, s, txmanager.Confirmed, 1)
	b.await(t, other, txmanager.Failed, 1)
	b.wantEnd(t, "mined in another version after a reorg", id, "CONFIRMED", "BUMP")
	b.wantEnd(t, "cancelled", regretted, "FAILED/PLACEHOLDER", "PLACEHOLDER")
	return 1, 1
}

// included waits until the version has a receipt.
func (b bench) included(t *testing.T, id string, version int) {
	t.Helper()
	b.awaitCount(t, fmt.Sprintf("no receipt of version %d of %s", version, id), 1, `select count(*) from managed_tx m join tx_version v using (tx_id)
		                 where tx_id = $1 and version = $2 and m.receipt ->> 'txHash' = v.tx_hash`, id, version)
}

// loses makes a foreign transaction consume the nonce of an intent in flight. The loss is accepted,
// and another intent continues behind it.
func (b bench) loses(t *testing.T, s txmanager.Submitter, n uint64) (nonces int) {
	t.Helper()
	id := b.inFlight(t, transfer(s, "taken"))
	b.useTheKey(t, n, 200)
	b.Chain.StartMining()
	incident := b.inProtect(t, s)
	b.await(t, s, txmanager.Protect, 1)
	b.mine(t, 70)
	body := map[string]any{"incident": incident, "mode": "resync", "count": n + 1, "reason": "the key was shared"}
	b.released(t, s, "", body)
	next := b.postUntilAnswered(t, transfer(s, "next"))
	b.finish(t)
	b.wantFate(t, "taken", id, "FAILED/DISPLACED", int(n))
	b.wantFate(t, "the next", next, "CONFIRMED", int(n)+1)
	return 2
}

// With every feature on, a process dies while it outbids a transaction, sends the bid, or delivers its
// event. The nonce is used once, and no event is lost.
func TestAllOptionalFeaturesSurviveAKill(t *testing.T) {
	t.Parallel()
	passes := map[string]int{
		"advance.version_signed": 1, "advance.version_stored": 1, "advance.sending": 2, "advance.sent": 2, "advance.released": 2,
		"receipt.looked": 1, "confirm.released": 1, "publish.taken": 2, "publish.told": 2, "publish.settled": 2,
	}
	folder := t.TempDir()
	o := stack.Options{Nodes: 3, Settings: withSettings(allFeatures, map[string]string{crash.Variable: folder, "FENCEPOST_CONFIRMATIONS_REQUIRED": "8"})}
	inTurn(t, o, slices.Sorted(maps.Keys(passes)), func(t *testing.T, b bench, point string) {
		arm := func() { check(t, crash.Arm(folder, point, passes[point], crash.Kill)) }
		if point != "receipt.looked" {
			arm()
		}
		s := b.Submitters()[0]
		b.Chain.StopMining()
		id := b.postUntilAnswered(t, transfer(s, "outbid"))
		b.postUntilAnswered(t, transfer(s, "behind it"))
		b.versions(t, id, "ORIGINAL", "BUMP")
		if point == "receipt.looked" {
			arm() // the machine's speed decides how many polls precede the bid, and an advance may see the next block first
		} else {
			b.mine(t, 1) // no second block comes before the kill, so that a confirmation is due
		}
		b.killed(t, folder, point)
		b.Chain.StartMining()
		b.ends(t, map[txmanager.Submitter]int{s: 2})
		b.wantAllEvents(t)
	})
}

// A feature that is on but unused costs a transaction no round trip, except those to the other nodes.
func TestRoundTripsOfAllOptionalFeatures(t *testing.T) {
	t.Parallel()
	of := func(settings map[string]string) stack.Cost {
		b := setup(t, stack.Options{Nodes: 3, Submitters: 1, Processes: 1, BlockTime: time.Second, Settings: withSettings(settings, map[string]string{
			"FENCEPOST_RPC_LEAVE_OUT": "1h", // heads are compared once
		})})
		return b.cheapest(t, threeNodesLife)
	}
	off := of(nil)
	on := of(map[string]string{
		"FENCEPOST_EVENTS_MODE": "mq_outbox", "FENCEPOST_FEES_HISTORY_ENABLED": "true", "FENCEPOST_MEMPOOL_DIAGNOSE_ENABLED": "true",
		"FENCEPOST_GASBUMP_ENABLED": "true", "FENCEPOST_TELEMETRY_BALANCES": "20",
	})
	t.Logf("a life, off: %+v; on: %+v", off, on)
	if on != off || on != threeNodesLife {
		t.Errorf("round trips of a life: got %+v with all on, %+v with all but the nodes off; want %+v", on, off, threeNodesLife)
	}
}

// A transaction that the pool has lost is sent again and then outbid. This also holds if a process
// dies while it sends it again and the bump is due at the next poll.
func TestTransactionLostFromThePoolIsOutbidWithAllFeatures(t *testing.T) {
	t.Parallel()
	o := stack.Options{Nodes: 3, Settings: withSettings(allFeatures, map[string]string{"FENCEPOST_GASBUMP_MIN_INTERVAL": "2s"})}
	killedInTurn(t, o, []string{"resubmit.claimed", "resubmit.released"}, func(t *testing.T, b bench, folder, point string) {
		s := b.Submitters()[0]
		id := b.inFlight(t, transfer(s, "lost"))
		b.Chain.DropPool()
		b.killed(t, folder, point)
		b.versions(t, id, "ORIGINAL", "BUMP")
		b.Chain.StartMining()
		b.ends(t, map[txmanager.Submitter]int{s: 1})
		b.wantAllEvents(t)
	})
}
