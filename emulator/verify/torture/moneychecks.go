package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/checkers"
	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/emulator/verify/checkers/promise"
	"github.com/fencepost/fencepost/emulator/verify/torture/transferload"
	"github.com/fencepost/fencepost/shared/transfer"
)

// The checks of transfers beside those of package money.
const (
	coreRecovers   = "core-recovers"
	steadyMoves    = "transfer-answers-steady"
	movedAsTold    = "moved-as-told"
	lateDuplicates = "late-duplicates"
	conservedAll   = "conserved-all-along"
	paidOnce       = "paid-or-refunded"
)

// checkMoney checks the promises about transfers. The last checks change the deployment's state,
// so the others come before them.
func (e *episode) checkMoney(ctx context.Context) (all []check, err error) {
	if e.transferRun == nil {
		return nil, nil
	}
	recovers := e.checkCoreRecovers(ctx)
	all = append(all, recovers, e.checkTransferAnswers())
	if len(recovers.Violations) > 0 {
		return all, nil // the other checks need the core
	}
	reads := []func(context.Context) ([]check, error){e.checkJournals, e.checkBalances, e.checkPayouts, e.checkDuplicates, e.checkConservation}
	if !e.ended { // a repeated call can change an unfinished transfer, without a fault
		reads = slices.Delete(reads, 3, 4)
	}
	for _, read := range reads {
		some, err := read(ctx)
		if err != nil {
			return all, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// violation returns a violation about a user and a transfer; either can be zero.
func violation(checker string, userID int64, reqID, format string, args ...any) checkers.Violation {
	return checkers.Violation{Checker: checker, Submitter: transferload.UserName(userID), TxID: reqID, Detail: fmt.Sprintf(format, args...)}
}

// checkCoreRecovers checks that the core came back each time and runs now.
func (e *episode) checkCoreRecovers(ctx context.Context) check {
	c := check{Name: coreRecovers, Promise: "however the trading core ends, it starts again with all that it had answered"}
	supervisor := e.world.Supervisor
	if supervisor.Failed() == nil && e.env.Core.Process().Err() != nil {
		supervisor.Revive(ctx)
	}
	if err := supervisor.Failed(); err != nil {
		c.Violations = append(c.Violations, violation(c.Name, 0, "", "after %d starts: %v", supervisor.Restarts(), err))
	}
	return c
}

func (e *episode) checkTransferAnswers() check {
	c := check{Name: steadyMoves, Promise: "no answer about a transfer contradicts an earlier one: one req_id, one end; what must be refused is refused; the core answers duplicates alike"}
	c.Violations = e.transferRun.Ledger.Contradictions(c.Name)
	if n := e.env.Core.Proxy.Struck(ubsproxy.Differed); n > 0 {
		c.Violations = append(c.Violations, violation(c.Name, 0, "", "%d calls to the core, made three times at once, were answered differently", n))
	}
	return c
}

// checkJournals runs the checkers of the two journals.
func (e *episode) checkJournals(ctx context.Context) (all []check, err error) {
	found, err := money.Check(ctx, money.Run{Database: e.env.Database, Core: e.env.Core.Ledger(), Lost: e.restores.transfers, Settled: e.ended})
	if err != nil {
		return nil, err
	}
	for _, c := range money.All() {
		all = append(all, check{c.Name, c.Promise, promise.Of(found, c.Name)})
	}
	return all, nil
}

// checkBalances compares each balance, and each transfer's end, with the answers that users got.
// It uses no journal.
func (e *episode) checkBalances(ctx context.Context) ([]check, error) {
	c := check{Name: movedAsTold, Promise: "each account holds what came from outside and moved by COMMITTED transfers, by the answers to users and cashier; each end is the one that its user got"}
	evidence, err := money.ReadEvidence(ctx, money.Run{Database: e.env.Database, Core: e.env.Core.Ledger(), Lost: e.restores.transfers})
	if err != nil {
		return nil, err
	}
	ends, err := e.transferEnds(ctx)
	if err != nil {
		return nil, err
	}
	expected, unknown := e.transferRun.Ledger.Expected(func(reqID string) *transferload.End {
		if end, stored := ends[reqID]; stored {
			return &end
		}
		return nil
	})
	halves := evidence.LostHalves()
	for _, h := range halves {
		expected[transferload.Account{Side: transfer.Spot, UserID: h.UserID, AssetID: h.AssetID}] += h.Units
	}
	c.Violations = append(c.Violations, unsettledHalves(halves, e.transferRun.Ledger.Settlements())...)
	for _, what := range unknown {
		c.Violations = append(c.Violations, violation(c.Name, 0, "", "%s", what))
	}
	held := make(map[transferload.Account]int64)
	for _, h := range evidence.Holdings() {
		held[transferload.Account{Side: transfer.Funding, UserID: h.UserID, AssetID: h.AssetID}] = h.Funding.Int64()
		held[transferload.Account{Side: transfer.Spot, UserID: h.UserID, AssetID: h.AssetID}] = h.Trading.Int64()
	}
	c.Violations = append(c.Violations, balanceDifferences(expected, held)...)
	c.Violations = append(c.Violations, contradictedEnds(e.transferRun.Ledger.Requests(), ends, e.transferRun.Ledger.EndMayBeLost, e.restores.transfers)...)
	return []check{c}, nil
}

// balanceDifferences lists the accounts whose balance is not the expected one.
func balanceDifferences(expected, held map[transferload.Account]int64) (found []checkers.Violation) {
	all := make(map[transferload.Account]int64)
	maps.Copy(all, expected)
	maps.Copy(all, held)
	for at := range all {
		if expected[at] != held[at] {
			found = append(found, violation(movedAsTold, at.UserID, "", "%s of asset %d holds %d, and by the answers it must be %d", at.Side, at.AssetID, held[at], expected[at]))
		}
	}
	slices.SortFunc(found, func(a, b checkers.Violation) int { return strings.Compare(a.Submitter+a.Detail, b.Submitter+b.Detail) })
	return found
}

// contradictedEnds lists the scripts whose row has another end than their user's answer, and the
// rows that no user knows of.
//
// An answer from after a restored backup can differ: lost reports this for a final answer, and
// rows has the req_ids that no backup has.
func contradictedEnds(scripts []*transferload.Script, ends map[string]transferload.End, lost func(transferload.Answers) bool, rows map[string]bool) (found []checkers.Violation) {
	known := make(map[string]bool)
	for _, w := range scripts {
		answers := w.Answers()
		known[answers.ID] = true
		end, stored := ends[answers.ID]
		switch {
		case answers.ID == "":
		case !stored && lost(answers) && rows[answers.ID]:
		case !stored:
			found = append(found, violation(movedAsTold, w.UserID, answers.ID, "cid %q was accepted, and there is no row", w.CID))
		case answers.End != nil && *answers.End != end && !lost(answers):
			found = append(found, violation(movedAsTold, w.UserID, answers.ID, "its user got %s, and it is %s", answers.End, end))
		}
	}
	for reqID, end := range ends {
		if !known[reqID] {
			found = append(found, violation(movedAsTold, 0, reqID, "no user knows of it, and it is %s", end))
		}
	}
	return found
}

// unsettledHalves lists the lost transfers whose movements at the core were not settled exactly.
func unsettledHalves(halves map[string]money.Half, settled map[string]int64) (found []checkers.Violation) {
	for reqID, h := range halves {
		if h.Units+settled[reqID] != 0 {
			found = append(found, violation(movedAsTold, h.UserID, reqID, "its row was lost, the core moved %d of asset %d for it, and %d was settled", h.Units, h.AssetID, settled[reqID]))
		}
	}
	return found
}

// transferEnds returns the state and reason of each transfer by req_id.
func (e *episode) transferEnds(ctx context.Context) (map[string]transferload.End, error) {
	rows, _ := e.db.Query(ctx, `select req_id, state, coalesce(error_message, '') from transfers_tb`) // the reader has the error
	ends := make(map[string]transferload.End)
	var reqID string
	var end transferload.End
	_, err := pgx.ForEachRow(rows, []any{&reqID, &end.State, &end.Reason}, func() error {
		ends[reqID] = end
		return nil
	})
	return ends, err
}

// checkConservation checks the results of the deployment's own checks, during the run and now.
func (e *episode) checkConservation(ctx context.Context) ([]check, error) {
	c := check{Name: conservedAll, Promise: "every check of conservation, whatever was under way, found nothing and halted nothing; so does a full one at the end"}
	rows, _ := e.db.Query(ctx, `
select user_id, kind, coalesce(req_id, ''), concat_ws(' ', kind, side, 'asset', asset_id, 'expected', expected, 'got', got), exists (select from conservation_standing s where s.finding_id = f.finding_id)
  from conservation_finding f
union all
select coalesce(user_id, 0), '', '', concat_ws(' ', 'halted:', scope, 'asset', asset_id, 'since', since), false
  from transfer_halt where resumed_at is null or not $1`, e.flags.restores > 0) // the reader has the error
	var userID int64
	var kind, reqID, detail string
	var stands bool
	_, err := pgx.ForEachRow(rows, []any{&userID, &kind, &reqID, &detail, &stands}, func() error {
		if !e.restores.isExplained(kind, reqID, detail, stands) {
			c.Violations = append(c.Violations, violation(c.Name, userID, reqID, "%s", detail))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	status, text := e.askAs(ctx, stack.OperatorAccount, http.MethodPost, "/admin/v1/conservation/check", map[string]any{"full": true})
	var report struct {
		Result string
		Found  []transferload.Finding
	}
	read := status == http.StatusOK && json.Unmarshal(text, &report) == nil
	unexplained := slices.ContainsFunc(report.Found, func(f transferload.Finding) bool {
		return !e.restores.isExplained(f.Kind, f.ReqID, f.Expected+" "+f.Got, true)
	})
	if !read || report.Result != "ok" && (report.Result != "standing" || unexplained) {
		c.Violations = append(c.Violations, violation(c.Name, 0, "", "the full check at the end: got %d %s, want ok", status, bytes.TrimSpace(text)))
	}
	return []check{c}, nil
}
