package checkers_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/verify/checkers"
	"github.com/fencepost/fencepost/emulator/verify/checkers/promise"
	"github.com/fencepost/fencepost/emulator/verify/checkers/promise/promisetest"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Each seeded bug is reported by the checker meant for it. Another checker reports it only if the bug
// breaks a second promise.
func TestSeededBugs(t *testing.T) {
	t.Parallel()
	clean := setup(t)
	for _, s := range seeds {
		t.Run(s.bug, func(t *testing.T) {
			t.Parallel()
			s.wantReported(clean.copyFor(t))
		})
	}
	for _, s := range chainSeeds {
		t.Run(s.bug, func(t *testing.T) {
			t.Parallel()
			s.wantReported(setup(t))
		})
	}
}

func (s seed) wantReported(b *bench) {
	b.Helper()
	s.plant(b)
	promisetest.WantReported(b, b.check(), s.want, s.says)
}

// Each checker has a seed that only this checker reports.
func TestEveryCheckerHasASeed(t *testing.T) {
	t.Parallel()
	var bugs [][]string
	for _, s := range slices.Concat(seeds, chainSeeds) {
		bugs = append(bugs, s.want)
	}
	promisetest.EachAlone(t, checkers.All(), bugs)
}

// Correct behaviour is not reported.
func TestNoFalseAlarm(t *testing.T) {
	t.Parallel()
	for what, play := range map[string]func(*bench){
		"everything has ended": func(*bench) {},
		"everything is under way": func(b *bench) {
			b.Settled = false
			b.submit(b.alice, "submitted", transfer)
			b.post(b.alice, "in flight", transfer)
			b.allocate(b.alice, nil)
			b.post(b.alice, "queued", transfer)
			b.take(b.alice)
			b.run(`update submitter_lease set rerun_requested = true where submitter = $1`, b.alice)
		},
		"others go ahead of what is deferred": func(b *bench) {
			b.overtaken("fee: too low; deferred since 2026-11-21T12:00:00Z: why")
			b.forge(`update managed_tx set caller = 'another' where tx_id = $1`, b.ids["first"])
		},
		"others go ahead of what is set aside":    func(b *bench) { b.overtaken("deferred until the open transactions are terminal: it would revert") },
		"others go ahead of what has no key here": func(b *bench) { b.overtaken("the function that signs does not have the key of the intent's MAC") },
		"a request was cancelled before it came": func(b *bench) {
			b.run(`
insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, state, sub_state)
select gen_random_uuid(), submitter, 'never came', caller, fingerprint, state, sub_state
  from managed_tx where tx_id = $1`, b.ids["cancelled"])
		},
		"the test used the key itself": func(b *bench) {
			b.mine(b.sign(0, 4, call))
			b.mine(b.delegation(5))
			b.displace("lost to a transaction")
			b.displace("lost to a delegation")
			b.carryOut(b.alice, "after", transfer, txmanager.Confirmed, "")
			b.Foreign = map[txmanager.Submitter][]uint64{b.alice: {4, 5}}
		},
		"a reorg deeper than final is being healed": func(b *bench) {
			b.carryOut(b.alice, "deep", transfer, txmanager.Confirmed, "")
			b.reorg(1)
			b.protect()
			b.point("PROTECT", "deep", 4)
			b.run(`update submitter_nonce_cursor set in_flight_tx_id = null, in_flight_nonce = null where submitter = $1`, b.alice)
			b.Settled = false
		},
		"a reorg deeper than final is healed": func(b *bench) {
			tx := b.submit(b.alice, "deep", transfer)
			b.finish(b.alice, "deep", tx, txmanager.Confirmed, "")
			b.reorg(1)
			b.protect()
			b.run(`update protect_incident set closed_at = clock_timestamp(), closed_by = 'op', mode = 'resume', reason = 'sent again'`)
			b.mine(tx)
		},
		"a release recorded what a restore had lost": func(b *bench) {
			b.recorded("lost", transfer)
			b.carryOut(b.alice, "after", transfer, txmanager.Confirmed, "")
			b.post(b.alice, "held", transfer)
			b.run(`update managed_tx set held = true, last_error = 'held: the database was restored' where tx_id = $1`, b.ids["held"])
			b.run(`update managed_tx set held = false, last_error = null where tx_id = $1`, b.ids["held"])
			b.run(`update managed_tx set state = 'FAILED', sub_state = 'CANCELLED' where tx_id = $1`, b.ids["held"])
		},
		"a release recorded what its node could not tell of": func(b *bench) {
			b.recorded("lost", transfer)
			b.forge(`update managed_tx set receipt = null, confirmations = null, confirmed_at = null, tx_hash = null where tx_id = $1`, b.ids["lost"])
		},
		"their quarter was archived": func(b *bench) {
			for _, table := range []string{"tx_document", "tx_history"} {
				b.forge(`delete from `+table+` where tx_id in ($1, $2)`, b.ids["pay"], b.ids["stop"])
			}
		},
		"the chain went on after it was read": func(b *bench) {
			tx := b.submit(b.alice, "new", transfer)
			b.finish(b.alice, "new", tx, txmanager.Confirmed, "")
			b.reorg(1) // the node does not show the version's block yet
			b.forge(`update managed_tx set receipt = jsonb_set(receipt, '{blockNumber}', '1000') where tx_id = $1`, b.ids["new"])
			b.Settled = false
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			play(b)
			if all := b.check(); len(all) > 0 {
				t.Errorf("got\n%swant no violation", checkers.Report(all))
			}
		})
	}
}

// One checker can run alone on evidence that was read once.
func TestOneChecker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.post(b.alice, "left", transfer)
	b.run(`update submitter_lease set rerun_requested = true where submitter = $1`, b.bob)
	evidence := check.Value(checkers.ReadEvidence(t.Context(), b.Run))(t)
	got := promise.Of(promise.CheckAll(checkers.All(), evidence), "settled")
	want := []checkers.Violation{
		{Checker: "settled", Submitter: string(b.alice), TxID: b.ids["left"], Detail: "it is still QUEUED"},
		{Checker: "settled", Submitter: string(b.bob), Detail: "a rerun flag is left on the lease"},
	}
	check.Same(t, "violations", got, want)
}

// An unreadable episode is an error and no verdict.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for want, change := range map[string]func(*checkers.Run){
		"read the chain":    func(e *checkers.Run) { e.RPC = "http://127.0.0.1:1" },
		"read the database": func(e *checkers.Run) { e.Database = "postgres://127.0.0.1:1/none" },
		"its registration": func(e *checkers.Run) {
			e.Submitters = []txmanager.Submitter{eip155.NewSubmitter(b.chain.ChainID(), b.keys[2].Address)}
		},
		"the node is of chain 1337": func(e *checkers.Run) {
			e.Submitters = []txmanager.Submitter{eip155.NewSubmitter(1, b.keys[0].Address)}
		},
	} {
		e := b.Run
		change(&e)
		if all, err := checkers.Check(t.Context(), e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %d violations and the error %v, want one that says %q", len(all), err, want)
		}
	}
}

// A report is text for people.
func TestReport(t *testing.T) {
	t.Parallel()
	check.Equal(t, "nothing", checkers.Report(nil), "violations: 0\n")
	got := checkers.Report([]checkers.Violation{
		{Checker: "cursor", Submitter: "eip155:1:0x0a", Detail: "the cursor is IDLE, want IN_FLIGHT"},
		{Checker: "settled", Submitter: "eip155:1:0x0a", TxID: "7", Detail: "it is still QUEUED"},
	})
	want := `violations: 2
  cursor: eip155:1:0x0a: the cursor is IDLE, want IN_FLIGHT
  settled: eip155:1:0x0a tx 7: it is still QUEUED
`
	check.Same(t, "report", got, want)
}
