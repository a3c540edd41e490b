package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers"
	"github.com/fencepost/fencepost/emulator/verify/checkers/promise"
	"github.com/fencepost/fencepost/emulator/verify/checkers/rows"
	"github.com/fencepost/fencepost/emulator/verify/torture/load"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/emulator/verify/torture/transferload"
	"github.com/fencepost/fencepost/shared/txmanager"
)

type check struct {
	Name       string               `json:"name"`
	Promise    string               `json:"promise"`
	Violations []checkers.Violation `json:"violations"`
}

// report adds a violation of an account.
func (c *check) report(submitter, txID, format string, args ...any) {
	c.Violations = append(c.Violations, checkers.Violation{Checker: c.Name, Submitter: submitter, TxID: txID, Detail: fmt.Sprintf(format, args...)})
}

// reporter takes a violation about a user and a transfer; either can be zero.
type reporter func(userID int64, reqID, format string, args ...any)

// reportUser is the [reporter] of the check.
func (c *check) reportUser(userID int64, reqID, format string, args ...any) {
	c.report(transferload.UserName(userID), reqID, format, args...)
}

// checksOf returns the checks of the checkers, given all that they found.
func checksOf[E any](all []promise.Checker[E], found []checkers.Violation) (checks []check) {
	for _, c := range all {
		checks = append(checks, check{c.Name, c.Promise, promise.Of(found, c.Name)})
	}
	return checks
}

type verdict struct {
	checks  []check
	figures figures
	missing []string // kinds of fault that a run of this length must have, and has not
}

func (v verdict) violations() (n int) {
	for _, c := range v.checks {
		n += len(c.Violations)
	}
	return n
}

func (e *episode) checkAll(ctx context.Context) (v verdict, err error) {
	defer steps.Return(&err)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	e.restores.read(ctx)
	v.checks = slices.Concat(
		checksOf(checkers.All(), e.runCheckers(ctx)), e.checkAnswers(ctx), e.checkFalseAlarms(ctx), e.checkEvents(ctx), e.checkMoney(ctx),
	)
	v.figures = e.count(ctx)
	v.missing = e.missingKinds(v.figures)
	return v, nil
}

const selectFalseAlarms = `
select submitter, incident, evidence::text, coalesce(evidence ->> 'what', '') like 'the database is not the one written last%'
  from protect_incident where submitter <> all ($1) order by opened_at`

// checkFalseAlarms finds PROTECT incidents of submitters whose keys only the deployment has: no
// fault may open one. Each restore opens one for each submitter.
func (e *episode) checkFalseAlarms(ctx context.Context) []check {
	c := check{Name: "protect-for-cause", Promise: "PROTECT opens only where a foreign signer used the key"}
	foreign := slices.AppendSeq([]txmanager.Submitter{}, maps.Keys(e.world.Foreign.Nonces()))
	byRestore := make(map[string]int)
	var submitter, evidence string
	var n int
	var restored bool
	rows.Each(ctx, e.db, []any{&submitter, &n, &evidence, &restored}, func() {
		if restored {
			byRestore[submitter]++
		}
		if !(restored && byRestore[submitter] <= len(e.restores.done) || e.restores.namesLostTx(evidence)) {
			c.report(submitter, "", "incident %d: %s", n, evidence)
		}
	}, selectFalseAlarms, foreign)
	return []check{c}
}

// managedSubmitters returns all accounts that sign, including the payer.
func (e *episode) managedSubmitters() []txmanager.Submitter {
	all := e.env.Submitters()
	if e.transferRun != nil {
		all = append(all, e.env.Payer)
	}
	return all
}

// runCheckers checks the chain and the history. A late task can hold a lease for a moment, so
// unfinished work alone is checked again. Of a run that has not ended it checks the promises that always hold, and the
// rows that are not terminal.
func (e *episode) runCheckers(ctx context.Context) (found []checkers.Violation) {
	all := checkers.Run{
		Database: e.env.Database, RPC: e.env.Chain.URL(), Submitters: e.managedSubmitters(), Foreign: e.world.Foreign.Nonces(), Lost: e.restores.hashes, Settled: e.ended,
	}
	if !e.ended {
		found = steps.Value(checkers.Check(ctx, all))
		all.Settled = true
		return append(found, promise.Of(steps.Value(checkers.Check(ctx, all)), "settled")...)
	}
	for range 10 {
		found = steps.Value(checkers.Check(ctx, all))
		if len(found) == 0 || len(promise.Of(found, "settled")) < len(found) {
			break
		}
		retry.Pause(ctx, time.Second)
	}
	return found
}

// missingKinds lists what never came in a run that is long enough for it.
func (e *episode) missingKinds(f figures) []string {
	if e.length() < e.forEachKind() || e.only != "" {
		return nil
	}
	required := maps.Clone(f.Faults)
	maps.Copy(required, f.Callers)
	maps.Copy(required, f.Features)
	if e.flags.restores > 0 {
		maps.DeleteFunc(required, func(name string, _ int) bool { return strings.HasPrefix(name, load.Reserved) })
		required["restores from a backup"] = len(e.restores.done) / e.flags.restores
	}
	if f.Transfers != nil {
		maps.Copy(required, f.Transfers.Users)
	}
	for what, n := range f.Operators {
		if strings.HasPrefix(what, load.Decides) && e.nodes < 2 { // with several nodes a node's fault leaves hardly anything STUCK
			required["a decision on STUCK"] += n
		}
	}
	required[load.Resyncs] = f.Operators[load.Resyncs]
	if e.length() >= 20*time.Minute { // a shorter run can miss one by chance
		maps.Copy(required, f.Operators)
		maps.Copy(required, f.CrashPoints)
		if f.Transfers != nil {
			maps.Copy(required, f.Transfers.Operators)
		}
	}
	maps.DeleteFunc(required, func(_ string, n int) bool { return n > 0 })
	return slices.Sorted(maps.Keys(required))
}

type figures struct {
	Seed        uint64         `json:"seed"`
	Minutes     float64        `json:"minutes"`
	Submitters  int            `json:"submitters"`
	Window      int            `json:"window"`
	Rate        float64        `json:"rate"`
	Faults      map[string]int `json:"faults"`
	CrashPoints map[string]int `json:"crashPoints"`
	Callers     map[string]int `json:"callers"`
	Operators   map[string]int `json:"operators"`
	Features    map[string]int `json:"powers"`

	Transfers *transferFigures `json:"transfers,omitempty"`

	Posted    int            `json:"posted"`
	Refused   int            `json:"refused"`  // SUBMITTER_PROTECTED
	Accepted  int            `json:"accepted"` // by an answer
	Stored    int            `json:"stored"`
	Confirmed int            `json:"confirmed"`
	Failed    map[string]int `json:"failed"`
	Protect   int            `json:"protectIncidents"`

	LongestCalm   float64 `json:"longestAcceptToFinalAfterFaultsSeconds"`
	LastLeftovers float64 `json:"lastOfTheUnfinishedSeconds"`
	TookSeconds   float64 `json:"tookSeconds"`
}

func (e *episode) count(ctx context.Context) figures {
	t := e.load.Ledger.Tally()
	injected, _ := e.injected()
	f := figures{
		Seed: e.seed, Minutes: e.minutes, Submitters: e.submitters, Window: e.window, Rate: e.rate,
		Faults: injected, CrashPoints: e.world.Crashes.Hits(), Callers: e.load.Ledger.Did(load.Habits()),
		Operators: e.load.Ledger.Did(load.Acts(e.flags.restores > 0)), Failed: make(map[string]int),
		Posted: t.Posted, Refused: t.Refused, Accepted: t.Accepted, TookSeconds: time.Since(e.folder.began).Seconds(),
		Features: e.countFeatures(ctx), Transfers: e.countTransfers(ctx),
	}
	if e.flags.restores > 0 {
		f.Faults["database lost, and restored from its backup"] = len(e.restores.done)
	}
	e.countRows(ctx, &f)
	return f
}

const selectEnds = `
select state, coalesce(sub_state, ''), count(*) from managed_tx group by 1, 2`

const selectTimes = `
with ends as (
  select m.created_at, h.at
    from managed_tx m
    join tx_history h on h.tx_id = m.tx_id and h.state in ('CONFIRMED', 'FAILED')
)
select coalesce(max(extract(epoch from at - created_at)) filter (where created_at >= $1), 0)::float8,
       coalesce(max(extract(epoch from at - $1)) filter (where created_at < $1 and at > $1), 0)::float8
  from ends`

const selectEpisodes = `
select count(*), count(*) filter (where mode = 'resume'), count(*) filter (where mode = 'resync')
  from protect_incident`

func (e *episode) countRows(ctx context.Context, f *figures) {
	var state txmanager.State
	var sub string
	var n int
	rows.Each(ctx, e.db, []any{&state, &sub, &n}, func() {
		f.Stored += n
		switch state {
		case txmanager.Confirmed:
			f.Confirmed = n
		case txmanager.Failed:
			f.Failed[sub] = n
		}
	}, selectEnds)
	steps.OK(e.db.QueryRow(ctx, selectTimes, e.stoppedAt).Scan(&f.LongestCalm, &f.LastLeftovers), "read the times")
	var resumed, resynced int
	steps.OK(e.db.QueryRow(ctx, selectEpisodes).Scan(&f.Protect, &resumed, &resynced), "count the incidents")
	f.Operators[load.Resumes], f.Operators[load.Resyncs] = resumed, resynced
}
