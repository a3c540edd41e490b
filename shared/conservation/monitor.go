package conservation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Monitor checks that no money comes from nothing and none is lost. It keeps nothing
// between two calls, and any number may run at once.
type Monitor struct {
	Book    Book
	Funding Journal
	Trading Journal
	Payouts Payouts  // nil: nobody looks at what a payout's target did
	Chain   Payments // nil: nobody reads the chain itself
	Mode    Mode     // conservation.halt

	Page     int // how much of a journal is read and stored at once; 0: 5,000
	Log      *slog.Logger
	Critical slog.Level // what a person must look at now
	Count    func(ctx context.Context, result string)
	At       func(point string) // passed between the steps by its name; nil but in tests
}

// The results that are counted.
const (
	ResultOK       = "ok"
	ResultStanding = "standing" // wrong, but nothing that was not known
	ResultViolated = "violated"
	ResultError    = "error" // nobody knows
)

// Report is what a run came to.
type Report struct {
	Full    bool
	Entries int       // read by this run
	Final   int       // transfers that became final, read by this run
	Found   []Finding // all that is wrong, as far as this run looked
	Fresh   []Finding // those of Found that no run had found before
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

// attempts are how often a run begins anew where others are faster.
const attempts = 8

// Check looks at all that is new since the last run, at every balance, and at all
// that was left open; or, full, at everything since the beginning. What is wrong is
// on record, and new transfers are halted, when Check returns; each new finding is
// logged as CRITICAL.
//
// An error is no verdict: nothing that was read may have been stored, or all. Check
// again. Work that was stored is not done again.
func (m *Monitor) Check(ctx context.Context, full bool) (report Report, err error) {
	report.Full = full
	defer func() { m.count(ctx, report, err) }()
	onChain, err := m.chain(ctx, full)
	if err != nil {
		return report, fmt.Errorf("check conservation: %w", err)
	}
	for range attempts {
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

// chain reads the chain itself, once for all attempts.
func (m *Monitor) chain(ctx context.Context, full bool) ([]Finding, error) {
	if m.Chain == nil {
		return nil, nil
	}
	found, err := m.Chain.Check(ctx, full)
	m.pass("after the chain")
	return found, err
}

// run is one attempt.
func (m *Monitor) run(ctx context.Context, full bool, onChain []Finding, report *Report) error {
	at, err := m.Book.Begin(ctx, full)
	if err != nil {
		return err
	}
	report.Full = at.Full
	w := &walk{Monitor: m, at: at, cursors: at.Cursors, report: report, onChain: onChain}
	if err = w.all(ctx); errors.Is(err, ErrWentBack) {
		return w.wentBack(ctx, err)
	}
	return err
}

// all reads in the order that the judgement needs, and judges.
func (w *walk) all(ctx context.Context) error {
	for _, read := range []struct {
		point string
		next  func(context.Context) (Round, bool, error)
	}{
		{"transfers", w.claims},
		{"payouts", w.payouts},
		{"trading", w.page(transfer.Spot, w.Trading, &w.cursors.Trading)},
		{"funding", w.page(transfer.Funding, w.Funding, &w.cursors.Funding)},
	} {
		if err := w.catchUp(ctx, read.next); err != nil {
			return fmt.Errorf("read %s: %w", read.point, err)
		}
		w.pass("after " + read.point)
	}
	return w.end(ctx)
}

// walk is one attempt on its way.
type walk struct {
	*Monitor
	at      Checkpoint // as it is stored
	cursors Cursors    // as far as was read
	round   Round      // what was read and is not stored
	report  *Report
	onChain []Finding // what is wrong by what was read of the chain itself
}

// catchUp reads pages to the end. All but the last are stored one by one, so that a
// run that dies goes on from there; the last is left for the verdict.
func (w *walk) catchUp(ctx context.Context, next func(context.Context) (Round, bool, error)) error {
	for {
		read, more, err := next(ctx)
		if err != nil {
			return err
		}
		w.add(read)
		if !more {
			return nil
		}
		if err := w.keep(ctx); err != nil {
			return err
		}
	}
}

func (w *walk) add(r Round) {
	w.round.Claims = append(w.round.Claims, r.Claims...)
	w.round.Readings = append(w.round.Readings, r.Readings...)
	w.report.Final += len(r.Claims)
	for _, reading := range r.Readings {
		w.report.Entries += len(reading.Entries)
	}
}

func (w *walk) claims(ctx context.Context) (Round, bool, error) {
	page, err := w.Book.Claims(ctx, w.cursors.Transfers, w.limit())
	if err != nil {
		return Round{}, false, err
	}
	w.cursors.Transfers = page.Next
	return Round{Claims: page.Claims}, page.More, nil
}

func (w *walk) payouts(ctx context.Context) (Round, bool, error) {
	if w.Payouts == nil {
		return Round{}, false, nil
	}
	page, err := w.Payouts.Page(ctx, w.cursors.Payouts, w.limit())
	if err != nil {
		return Round{}, false, err
	}
	w.cursors.Payouts = page.Next
	return Round{Readings: []Reading{{Side: transfer.Chain, Entries: page.Entries}}}, page.More, nil
}

func (w *walk) page(side Side, journal Journal, cursor *Cursor) func(context.Context) (Round, bool, error) {
	return func(ctx context.Context) (Round, bool, error) {
		page, err := journal.Page(ctx, *cursor, w.limit())
		if err != nil {
			return Round{}, false, err
		}
		*cursor = page.Next
		return Round{Readings: []Reading{{Side: side, Entries: page.Entries, Scales: page.Scales}}}, page.More, nil
	}
}

// keep stores what was read so far.
func (w *walk) keep(ctx context.Context) error {
	known, err := w.Book.Known(ctx, w.at, w.round.Requests(), false)
	if err != nil {
		return err
	}
	found := known.Merge(w.round)
	return w.store(ctx, Step{Moved: w.round.Moved(), Evidence: known.Evidence, Scales: w.round.scales(), Found: found})
}

// end reads both sides up to a point each, Funding first, and gives the verdict.
func (w *walk) end(ctx context.Context) error {
	funding, err := w.Funding.Point(ctx, w.cursors.Funding)
	if err != nil {
		return fmt.Errorf("read Funding and its balances: %w", err)
	}
	w.pass("after funding's point")
	trading, err := w.Trading.Point(ctx, w.cursors.Trading)
	if err != nil {
		return fmt.Errorf("read Trading and its balances: %w", err)
	}
	w.cursors.Funding, w.cursors.Trading = funding.Next, trading.Next
	w.add(Round{Readings: []Reading{
		{Side: transfer.Funding, Entries: funding.Entries, Scales: funding.Scales},
		{Side: transfer.Spot, Entries: trading.Entries, Scales: trading.Scales, Last: true},
	}})
	known, err := w.Book.Known(ctx, w.at, w.round.Requests(), true)
	if err != nil {
		return err
	}
	found := known.Merge(w.round)
	found = append(found, known.Missing(w.round, w.Payouts != nil)...)
	found = append(found, known.precisions(w.round)...)
	found = append(found, w.onChain...)
	moved := w.round.Moved()
	for side, balances := range map[Side]map[Account]Sum{transfer.Funding: funding.Balances, transfer.Spot: trading.Balances} {
		sums, err := w.Book.Sums(ctx, w.at, side)
		if err != nil {
			return err
		}
		found = append(found, Balances(side, plus(sums, moved[side]), balances)...)
	}
	if err := w.store(ctx, Step{Moved: moved, Evidence: known.Evidence, Scales: w.round.scales(), Found: found, Verdict: true, Chain: w.Chain != nil}); err != nil {
		return err
	}
	if w.at.Full {
		return w.Book.Finish(ctx, w.at)
	}
	return nil
}

// wentBack is the only finding of a run whose journal has lost what was read of it:
// nothing else can be judged by what was read before. A full run has to follow, and the
// error that is returned is the cause.
func (w *walk) wentBack(ctx context.Context, cause error) error {
	w.cursors = w.at.Cursors
	err := w.store(ctx, Step{Lost: true, Found: []Finding{{Kind: JournalWentBack, Side: transfer.Spot,
		Expected: "line " + string(w.at.Cursors.Trading), Got: "another journal", Evidence: cause.Error()}}})
	if err != nil {
		return err
	}
	return cause
}

func plus(sums, moved map[Account]Sum) map[Account]Sum {
	all := maps.Clone(sums)
	for at, change := range moved {
		all[at] = all[at].Plus(change)
	}
	return all
}

// store stores a step, and tells what is new of what it found.
func (w *walk) store(ctx context.Context, s Step) error {
	s.From, s.Cursors, s.Mode = w.at, w.cursors, w.Mode
	if w.Chain != nil {
		s.Owed = w.round.owed()
	}
	s.Halts = max(1, haltsAtOnce-len(w.report.Halts))
	w.pass("before a step")
	stored, err := w.Book.Store(ctx, s)
	if err != nil {
		return err
	}
	w.pass("after a step")
	w.at, w.round = stored.Checkpoint, Round{}
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

// haltsAtOnce is how many halts a run makes, each for one finding. After that each step
// that finds something new makes one for all of it.
const haltsAtOnce = 20

func (m *Monitor) limit() int {
	if m.Page == 0 {
		return 5000
	}
	return m.Page
}

func (m *Monitor) pass(point string) {
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
