package main

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/emulator/verify/checkers/rows"
	"github.com/fencepost/fencepost/emulator/verify/torture/transferload"
)

// checkMoney checks the promises about transfers. The last checks change the deployment's state,
// so the others come before them.
func (e *episode) checkMoney(ctx context.Context) []check {
	if e.transferRun == nil {
		return nil
	}
	recovers := e.checkCoreRecovers(ctx)
	all := []check{recovers, e.checkTransferAnswers()}
	if len(recovers.Violations) > 0 {
		return all // the other checks need the core
	}
	all = append(all, checksOf(money.All(), steps.Value(money.Check(ctx, e.moneyRun())))...) // of the two journals
	all = append(all, e.checkBalances(ctx), e.checkPayouts(ctx))
	if e.ended { // before that a repeated call can change an unfinished transfer, without a fault
		all = append(all, e.checkDuplicates(ctx))
	}
	return append(all, e.checkConservation(ctx))
}

// checkCoreRecovers checks that the core came back each time and runs now.
func (e *episode) checkCoreRecovers(ctx context.Context) check {
	c := check{Name: "core-recovers", Promise: "however the trading core ends, it starts again with all that it had answered"}
	restarts, failed := e.world.Supervisor.Restarts()
	if failed == nil && e.env.Core.Process().Err() != nil {
		failed = e.world.Supervisor.Revive(ctx)
	}
	if failed != nil {
		c.reportUser(0, "", "after %d starts: %v", restarts, failed)
	}
	return c
}

func (e *episode) checkTransferAnswers() check {
	c := check{Name: "transfer-answers-steady", Promise: "no answer about a transfer contradicts an earlier one: one req_id, one end; what must be refused is refused; the core answers duplicates alike"}
	c.Violations = e.transferRun.Ledger.Contradictions(c.Name)
	if n := e.env.Core.Proxy.Struck(ubsproxy.Differed); n > 0 {
		c.reportUser(0, "", "%d calls to the core, made three times at once, were answered differently", n)
	}
	return c
}

func (e *episode) moneyRun() money.Run {
	return money.Run{Database: e.env.Database, Core: e.env.Core.Ledger(), Lost: e.restores.transfers, Settled: e.ended}
}

// checkBalances compares each balance, and each transfer's end, with the answers that users got.
// It uses no journal.
func (e *episode) checkBalances(ctx context.Context) check {
	c := check{Name: "moved-as-told", Promise: "each account holds what came from outside and moved by COMMITTED transfers, by the answers to users and cashier; each end is the one that its user got"}
	evidence, ends := steps.Value(money.ReadEvidence(ctx, e.moneyRun())), e.transferEnds(ctx)
	expected, unknown := e.transferRun.Ledger.Expected(ends)
	halves := evidence.LostHalves()
	for _, h := range halves {
		expected[h.Account] += h.Units
	}
	unsettledHalves(c.reportUser, halves, e.transferRun.Ledger.Settlements())
	for _, what := range unknown {
		c.reportUser(0, "", "%s", what)
	}
	held := make(map[transferload.Account]int64)
	for at, units := range evidence.Balances {
		held[at] = units.Int64()
	}
	balanceDifferences(c.reportUser, expected, held)
	contradictedEnds(c.reportUser, e.transferRun.Ledger.Requests(), ends, e.transferRun.Ledger.EndMayBeLost, e.restores.transfers)
	return c
}

// balanceDifferences reports the accounts whose balance is not the expected one.
func balanceDifferences(report reporter, expected, held map[transferload.Account]int64) {
	all := make(map[transferload.Account]int64)
	maps.Copy(all, expected)
	maps.Copy(all, held)
	byUser := func(a, b transferload.Account) int {
		return cmp.Or(cmp.Compare(a.UserID, b.UserID), cmp.Compare(a.AssetID, b.AssetID), cmp.Compare(a.Side, b.Side))
	}
	for _, at := range slices.SortedFunc(maps.Keys(all), byUser) {
		if expected[at] != held[at] {
			report(at.UserID, "", "%s of asset %d holds %d, and by the answers it must be %d", at.Side, at.AssetID, held[at], expected[at])
		}
	}
}

// contradictedEnds reports the scripts whose row has another end than their user's answer, and the
// rows that no user knows of.
//
// An answer from after a restored backup can differ: lost reports this for a final answer, and
// rows has the req_ids that no backup has.
func contradictedEnds(report reporter, scripts []*transferload.Script, ends map[string]transferload.End, lost func(transferload.Answers) bool, rows map[string]bool) {
	known := make(map[string]bool)
	for _, w := range scripts {
		answers := w.Answers()
		known[answers.ID] = true
		end, stored := ends[answers.ID]
		switch {
		case answers.ID == "":
		case !stored && lost(answers) && rows[answers.ID]:
		case !stored:
			report(w.UserID, answers.ID, "cid %q was accepted, and there is no row", w.CID)
		case answers.End != nil && *answers.End != end && !lost(answers):
			report(w.UserID, answers.ID, "its user got %s, and it is %s", answers.End, end)
		}
	}
	for reqID, end := range ends {
		if !known[reqID] {
			report(0, reqID, "no user knows of it, and it is %s", end)
		}
	}
}

// unsettledHalves reports the lost transfers whose movements at the core were not settled exactly.
func unsettledHalves(report reporter, halves map[string]money.Half, settled map[string]int64) {
	for reqID, h := range halves {
		if h.Units+settled[reqID] != 0 {
			report(h.UserID, reqID, "its row was lost, the core moved %d of asset %d for it, and %d was settled", h.Units, h.AssetID, settled[reqID])
		}
	}
}

// transferEnds returns the state and reason of each transfer by req_id.
func (e *episode) transferEnds(ctx context.Context) map[string]transferload.End {
	ends := make(map[string]transferload.End)
	var reqID string
	var end transferload.End
	const query = `select req_id, state, coalesce(error_message, '') from transfers_tb`
	rows.Each(ctx, e.db, []any{&reqID, &end.State, &end.Reason}, func() { ends[reqID] = end }, query)
	return ends
}

// checkConservation checks the results of the deployment's own checks, during the run and now.
func (e *episode) checkConservation(ctx context.Context) check {
	c := check{Name: "conserved-all-along", Promise: "every check of conservation, whatever was under way, found nothing and halted nothing; so does a full one at the end"}
	var userID int64
	var kind, reqID, detail string
	var stands bool
	rows.Each(ctx, e.db, []any{&userID, &kind, &reqID, &detail, &stands}, func() {
		if !e.restores.isExplained(kind, reqID, detail, stands) {
			c.reportUser(userID, reqID, "%s", detail)
		}
	}, `
select user_id, kind, coalesce(req_id, ''), concat_ws(' ', kind, side, 'asset', asset_id, 'expected', expected, 'got', got), exists (select from conservation_standing s where s.finding_id = f.finding_id)
  from conservation_finding f
union all
select coalesce(user_id, 0), '', '', concat_ws(' ', 'halted:', scope, 'asset', asset_id, 'since', since), false
  from transfer_halt where resumed_at is null or not $1`, e.flags.restores > 0)
	a := e.askAs(ctx, stack.OperatorAccount, http.MethodPost, "/admin/v1/conservation/check", map[string]any{"full": true})
	var report struct{ Found []transferload.Finding }
	read := a.Status == http.StatusOK && json.Unmarshal(a.Text, &report) == nil
	unexplained := slices.ContainsFunc(report.Found, func(f transferload.Finding) bool {
		return !e.restores.isExplained(f.Kind, f.ReqID, f.Expected+" "+f.Got, true)
	})
	if !read || a.Result != "ok" && (a.Result != "standing" || unexplained) {
		c.reportUser(0, "", "the full check at the end: got %s, want ok", a)
	}
	return c
}
