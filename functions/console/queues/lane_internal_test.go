package queues

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const account = "eip155:1:0x0000000000000000000000000000000000005409"

// noncesOf are count nonces of ours from one on, of which those from open on are in the state.
func noncesOf(from, count, open uint64, state client.TxState) (rows []client.LaneNonce) {
	for n := from; n < from+count; n++ {
		one := client.LaneNonce{Nonce: n, Kind: "OURS", TxID: fmt.Sprint("tx-", n), State: client.Confirmed}
		if n >= open {
			one.State = state
		}
		rows = append(rows, one)
	}
	return rows
}

func answered(rows []client.LaneNonce, more bool) part[list[client.LaneNonce]] {
	return part[list[client.LaneNonce]]{Value: list[client.LaneNonce]{Rows: rows, More: more}}
}

func TestLaneBeginsBeforeTheLowestOpenNonce(t *testing.T) {
	for _, c := range []struct {
		name         string
		count, open  uint64
		first, last  uint64
		older, newer bool
	}{
		{"few", 5, 3, 0, 4, false, false},
		{"the newest, with none open", 400, 400, 250, 399, true, false},
		{"many open", 400, 100, 90, 239, true, true},
		{"open at the end", 400, 390, 250, 399, true, false},
		{"open at the beginning", 400, 2, 0, 149, false, true},
	} {
		l := laneOf(client.Submitter{Submitter: account, NextNonce: c.count}, answered(noncesOf(0, c.count, c.open, client.Tracking), false), nil, false)
		if l.First != c.first || l.Last != c.last || (l.Older != "") != c.older || (l.Newer != "") != c.newer {
			t.Errorf("%s: got %d to %d, older %q, newer %q; want %d to %d", c.name, l.First, l.Last, l.Older, l.Newer, c.first, c.last)
		}
	}
}

func TestLanePagesByNonces(t *testing.T) {
	from := uint64(100)
	l := laneOf(client.Submitter{Submitter: account, StartNonce: 7, NextNonce: 900}, answered(noncesOf(100, laneSquares, 900, client.Tracking), true), &from, true)
	const at = "/console/submitters/" + account
	check.Equal(t, "older", l.Older, at+"?from=7&as=table")
	check.Equal(t, "newer", l.Newer, at+"?from=250&as=table")
	check.Equal(t, "as squares", l.Here, at+"?from=100")
}

func TestLaneShowsWhatTheChainCountsAndNothingRecords(t *testing.T) {
	s := client.Submitter{Submitter: account, NextNonce: 3, Chain: &client.ChainAccount{Latest: new(uint64(6)), Pending: new(uint64(6)), Finalized: new(uint64(5))}}
	l := laneOf(s, answered(noncesOf(0, 3, 2, client.Submitted), false), nil, false)
	var got []string
	for _, q := range l.Squares {
		got = append(got, fmt.Sprint(q.Nonce, q.StateName(), q.Marks))
	}
	if want := "0CONFIRMED[] 1CONFIRMED[] 2SUBMITTED[] 3UNRECORDED[next] 4UNRECORDED[] 5NEXT[final]"; strings.Join(got, " ") != want || l.Unrecorded != 2 {
		t.Errorf("got %v, and %d without a record; want %s", got, l.Unrecorded, want)
	}
	s.Chain.Finalized = new(uint64(3))
	l = laneOf(s, answered(noncesOf(0, 3, 2, client.Submitted), false), nil, false)
	check.Equal(t, "without a record, by a latest count that may be newer than the record", l.Unrecorded, 0)
}

func TestEachStateHasADrawing(t *testing.T) {
	letters := make(map[string]string)
	for _, s := range txmanager.States() {
		for _, sub := range s.SubStates() {
			if s == txmanager.Queued || sub == txmanager.Rejected || sub == txmanager.Cancelled || sub == txmanager.Expired {
				continue // without a nonce
			}
			if l := drawingOf(client.LaneNonce{Kind: "OURS", State: client.TxState(s), SubState: string(sub)}); l.Class == "sq-gap" {
				t.Errorf("%s %s has no drawing", s, sub)
			}
		}
	}
	for _, name := range legend {
		l := drawings[name]
		if l.Letter == "" || letters[l.Letter] != "" {
			t.Errorf("%s: letter %q, also of %q; want one of its own", name, l.Letter, letters[l.Letter])
		}
		letters[l.Letter] = name
	}
}

func TestDiagramHasEachStateAndEachChange(t *testing.T) {
	at := make(map[string]node)
	for _, n := range diagramOf(nil, client.Tx{ListedTx: client.ListedTx{State: client.Stuck}}).Nodes {
		at[n.Name] = n
	}
	var history []client.TxChange
	changes := 0
	for _, from := range txmanager.States() {
		if _, ok := at[string(from)]; !ok {
			t.Errorf("the diagram lacks %s", from)
		}
		for _, to := range txmanager.States() {
			if from != to && from.MayBecome(to) {
				changes++
				history = append(history, client.TxChange{From: client.TxState(from), State: client.TxState(to), At: time.Unix(1, 0)})
			}
		}
	}
	d := diagramOf(history, client.Tx{ListedTx: client.ListedTx{State: client.Failed}})
	gone := make(map[string]bool)
	for _, e := range d.Edges {
		if e.Class == "gone" {
			gone[e.D] = true
		}
	}
	check.Equal(t, "different curves", len(gone), changes)
	if len(at) != len(txmanager.States()) || at["STUCK"].Class != "now warn" || at["QUEUED"].Class != "" {
		t.Errorf("got %+v, want STUCK as the present state", at)
	}
}

func TestDiagramShowsThePath(t *testing.T) {
	when := time.Date(2026, 11, 27, 3, 4, 5, 0, time.UTC)
	d := diagramOf([]client.TxChange{{State: client.Queued, At: when}, {From: client.Queued, State: client.Queued, At: when}, {From: client.Queued, State: client.Submitted, At: when},
		{From: client.Submitted, State: client.Tracking, At: when}, {From: client.Tracking, State: client.Submitted, At: when}, {From: client.Submitted, State: client.Tracking, At: when.Add(time.Minute)},
		{From: client.Tracking, State: client.Confirmed, At: when}}, client.Tx{ListedTx: client.ListedTx{State: client.Confirmed}})
	check.Equal(t, "path", d.Path, "QUEUED → SUBMITTED → TRACKING → SUBMITTED → TRACKING → CONFIRMED")
	for _, n := range d.Nodes {
		if want := map[string]string{"TRACKING": "03:05:05 ×2", "CONFIRMED": "03:04:05", "STUCK": ""}; n.Name != "QUEUED" && n.Name != "SUBMITTED" && n.When != want[n.Name] {
			t.Errorf("%s: got %q, want %q", n.Name, n.When, want[n.Name])
		}
	}
}

func TestReorgsAreChangesOfTheBlock(t *testing.T) {
	rows := []client.TxChange{{}, {BlockHash: "0xa"}, {BlockHash: "0xa"}, {}, {BlockHash: "0xb"}, {BlockHash: "0xc"}}
	got := transaction{History: part[list[client.TxChange]]{Value: list[client.TxChange]{Rows: rows}}}.Reorgs()
	check.Same(t, "the loss of 0xa and the change to 0xc", got, []client.TxChange{{}, {BlockHash: "0xc"}})
}

func TestLightIsRedForWhatStandsStill(t *testing.T) {
	for _, c := range []struct {
		kind    string
		overdue bool
		want    string
	}{{"PROTECT", true, "bad"}, {"BLOCKED", true, "bad"}, {"BLOCKED", false, "ok"}, {"PROPOSAL", true, "warn"}, {"NEW_KIND", true, "bad"}} {
		now := time.Now()
		o := overview{Overview: client.Overview{At: now, RatesUpTo: &now, Attention: []client.AttentionCount{{Kind: c.kind, Overdue: c.overdue, Count: 1}}}}
		o.Conservation.Value.LastCheck = &client.LastCheck{At: now}
		o.count()
		check.Equal(t, fmt.Sprintf("%s, overdue %t", c.kind, c.overdue), o.lightOf().Tone, c.want)
	}
	o := overview{Excluded: []badNode{{}}}
	check.Equal(t, "an excluded node", o.lightOf().Tone, "warn")
}
