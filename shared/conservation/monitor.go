package conservation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Monitor checks that no money is created or lost. It keeps no state between two calls, and any
// number of them can run at once.
type Monitor struct {
	Book    Store
	Funding Journal
	Trading Journal
	Payouts Payouts  // nil: payouts' targets are not checked
	Chain   Payments // nil: the chain is not read
	Mode    Mode     // conservation.halt

	Page     int // entries of a journal that are read and stored at once; 0: 5,000
	Log      *slog.Logger
	Critical slog.Level // the log level for a person who must act now
	Count    func(ctx context.Context, result string)
	At       func(point string) // called at each crash point; nil outside tests
}

// The results, as the metric counts them.
const (
	ResultOK       = "ok"
	ResultStanding = "standing" // a violation, but no new one
	ResultViolated = "violated"
	ResultError    = "error" // the check was not completed
)

// Report is the result of a run.
type Report struct {
	Full    bool
	Entries int       // read by this run
	Final   int       // transfers that became final, read by this run
	Found   []Finding // every violation that this run has seen
	Fresh   []Finding // those of Found that no earlier run has found
	Halts   []Halt    // that this run made
}

// Result is what the run is counted as.
func (r Report) Result() string {
	switch {
	case len(r.Fresh) > 0:
		return ResultViolated
	case len(r.Found) > 0:
		return ResultStanding
	}
	return ResultOK
}

// maxAttempts bounds how often a run begins again because another run was faster.
const maxAttempts = 8

// Check evaluates everything since the last run, each balance, and each open request. A full check
// evaluates everything since the beginning. When Check returns, violations are recorded and new
// transfers are halted. Each new finding is logged as CRITICAL.
//
// After an error there is no verdict: all, some or none of the steps are stored. The caller should
// check again, and the stored steps are not repeated.
func (m *Monitor) Check(ctx context.Context, full bool) (report Report, err error) {
	report.Full = full
	defer func() { m.count(ctx, report, err) }()
	var onChain []Finding // read once for all attempts
	if m.Chain != nil {
		onChain, err = m.Chain.Check(ctx, full)
		m.reach("after the chain")
		if err != nil {
			return report, fmt.Errorf("check conservation: %w", err)
		}
	}
	for range maxAttempts {
		err = m.run(ctx, full, onChain, &report)
		if !errors.Is(err, ErrSuperseded) && !errors.Is(err, ErrWentBack) {
			break
		}
	}
	if err != nil {
		return report, fmt.Errorf("check conservation: %w", err)
	}
	return report, nil
}

// run makes one attempt.
func (m *Monitor) run(ctx context.Context, full bool, onChain []Finding, report *Report) error {
	at, err := m.Book.Begin(ctx, full)
	if err != nil {
		return err
	}
	report.Full = at.Full
	w := &walk{Monitor: m, at: at, cursors: at.Cursors, report: report, onChain: onChain}
	if err = w.readAll(ctx); errors.Is(err, ErrWentBack) {
		return w.recordWentBack(ctx, err)
	}
	return err
}

// readAll reads in the order that the evaluation requires, and evaluates.
func (w *walk) readAll(ctx context.Context) error {
	payouts := func(_ context.Context, after Cursor, _ int) (Page, error) { return Page{Next: after}, nil } // there is no journal
	if w.Payouts != nil {
		payouts = w.Payouts.Page
	}
	for _, journal := range []struct {
		name   string
		side   Side
		read   pageReader
		cursor *Cursor
	}{
		{"transfers", "", w.Book.Claims, &w.cursors.Transfers},
		{"payouts", transfer.Chain, payouts, &w.cursors.Payouts},
		{"trading", transfer.Spot, w.Trading.Page, &w.cursors.Trading},
		{"funding", transfer.Funding, w.Funding.Page, &w.cursors.Funding},
	} {
		if err := w.catchUp(ctx, journal.side, journal.read, journal.cursor); err != nil {
			return fmt.Errorf("read %s: %w", journal.name, err)
		}
		w.reach("after " + journal.name)
	}
	return w.end(ctx)
}

// walk is one attempt of a run.
type walk struct {
	*Monitor
	at      Checkpoint // as stored
	cursors Cursors    // as far as was read
	batch   Batch      // input that was read and is not stored yet
	report  *Report
	onChain []Finding // violations found on the chain
}

// pageReader reads a page as [Journal].Page does.
type pageReader func(ctx context.Context, after Cursor, limit int) (Page, error)

// catchUp reads pages to the end. It stores all but the last one by one, so that another run can
// continue after a crash. The last page is part of the verdict.
func (w *walk) catchUp(ctx context.Context, side Side, read pageReader, cursor *Cursor) error {
	for {
		page, err := read(ctx, *cursor, w.limit())
		if err != nil {
			return err
		}
		w.add(side, page, cursor, false)
		if !page.More {
			return nil
		}
		if err := w.keep(ctx); err != nil {
			return err
		}
	}
}

// add adds a page of a journal to the batch. last marks the last read of the run.
func (w *walk) add(side Side, page Page, cursor *Cursor, last bool) {
	*cursor = page.Next
	w.report.Final += len(page.Claims)
	w.report.Entries += len(page.Entries)
	w.batch.Claims = append(w.batch.Claims, page.Claims...)
	for _, e := range page.Entries {
		w.batch.Entries = append(w.batch.Entries, Entry{e, side, last})
	}
	for _, s := range page.Scales {
		w.batch.Scales = append(w.batch.Scales, Scale{side, s.AssetID, s.Precision})
	}
}

// keep stores the batch so far.
func (w *walk) keep(ctx context.Context) error {
	known, err := w.Book.Known(ctx, w.at, w.batch.Requests(), false)
	if err != nil {
		return err
	}
	found := known.Merge(w.batch)
	return w.store(ctx, Step{Moved: w.batch.Moved(), Evidence: known.Evidence, Scales: distinct(w.batch.Scales), Found: found})
}

// end reads both sides up to a point each, Funding first, and stores the verdict.
func (w *walk) end(ctx context.Context) error {
	funding, err := w.Funding.Point(ctx, w.cursors.Funding)
	if err != nil {
		return fmt.Errorf("read Funding and its balances: %w", err)
	}
	w.reach("after funding's point")
	trading, err := w.Trading.Point(ctx, w.cursors.Trading)
	if err != nil {
		return fmt.Errorf("read Trading and its balances: %w", err)
	}
	w.add(transfer.Funding, funding.Page, &w.cursors.Funding, false)
	w.add(transfer.Spot, trading.Page, &w.cursors.Trading, true)
	known, err := w.Book.Known(ctx, w.at, w.batch.Requests(), true)
	if err != nil {
		return err
	}
	found := known.Merge(w.batch)
	found = append(found, known.Missing(w.batch, w.Payouts != nil)...)
	found = append(found, known.precisions(w.batch)...)
	found = append(found, w.onChain...)
	moved := w.batch.Moved()
	for side, balances := range map[Side]map[Account]Sum{transfer.Funding: funding.Balances, transfer.Spot: trading.Balances} {
		sums, err := w.Book.Sums(ctx, w.at, side)
		if err != nil {
			return err
		}
		found = append(found, Balances(side, plus(sums, moved[side]), balances)...)
	}
	if err := w.store(ctx, Step{Moved: moved, Evidence: known.Evidence, Scales: distinct(w.batch.Scales), Found: found, Verdict: true, Chain: w.Chain != nil}); err != nil {
		return err
	}
	if w.at.Full {
		return w.Book.Finish(ctx, w.at)
	}
	return nil
}

// recordWentBack stores that a journal has lost lines that were read. It is the only finding of its
// run, since the evidence of earlier reads no longer counts. A full run must follow, and the
// returned error is the cause.
func (w *walk) recordWentBack(ctx context.Context, cause error) error {
	w.cursors = w.at.Cursors
	err := w.store(ctx, Step{Lost: true, Found: []Finding{{Kind: JournalWentBack, Side: transfer.Spot,
		Expected: "line " + string(w.at.Cursors.Trading), Got: "another journal", Evidence: cause.Error()}}})
	return cmp.Or(err, cause)
}

func plus(sums, moved map[Account]Sum) map[Account]Sum {
	all := maps.Clone(sums)
	for at, change := range moved {
		all[at] = all[at].Plus(change)
	}
	return all
}

// store stores a step and logs its new findings and halts.
func (w *walk) store(ctx context.Context, s Step) error {
	s.From, s.Cursors, s.Mode = w.at, w.cursors, w.Mode
	if w.Chain != nil {
		s.Owed = w.batch.owed()
	}
	s.Halts = max(1, maxHaltsPerRun-len(w.report.Halts))
	w.reach("before a step")
	stored, err := w.Book.Store(ctx, s)
	if err != nil {
		return err
	}
	w.reach("after a step")
	w.at, w.batch = stored.Checkpoint, Batch{}
	w.report.Found = append(w.report.Found, s.Found...)
	w.report.Fresh = append(w.report.Fresh, stored.Fresh...)
	w.report.Halts = append(w.report.Halts, stored.Halts...)
	for _, f := range stored.Fresh {
		w.Log.Log(ctx, w.Critical, "conservation violated", "alert", "MON-003", "kind", f.Kind, "side", f.Side, "reqId", f.ReqID,
			"userId", f.Account.UserID, "assetId", f.Account.AssetID, "expected", f.Expected, "got", f.Got)
	}
	for _, h := range stored.Halts {
		w.Log.Log(ctx, w.Critical, "transfers halted", "alert", "MON-003", "scope", h.Scope, "userId", h.Account.UserID, "assetId", h.Account.AssetID)
	}
	return nil
}

// maxHaltsPerRun is how many halts a run makes, each for one finding. After that each step with new
// findings makes one halt for all of them.
const maxHaltsPerRun = 20

func (m *Monitor) limit() int { return cmp.Or(m.Page, 5000) }

func (m *Monitor) reach(point string) {
	if m.At != nil {
		m.At(point)
	}
}

func (m *Monitor) count(ctx context.Context, r Report, err error) {
	result := r.Result()
	if err != nil && len(r.Fresh) == 0 {
		result = ResultError
		m.Log.ErrorContext(ctx, "conservation not checked", "error", err)
	}
	if result == ResultStanding {
		m.Log.ErrorContext(ctx, "conservation violated as before", "findings", len(r.Found))
	}
	if m.Count != nil {
		m.Count(ctx, result)
	}
}
