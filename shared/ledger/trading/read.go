package trading

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
)

var _ conservation.Core = (*Ledger)(nil)

// Journal returns the core's answers after the given line: all lines in order, at most limit, and
// the number of the last one. No lines means the end. Journal checks that no line is missing. Lines
// that are not durable are not shown. [wire.Moves] reports which lines move money.
func (l *Ledger) Journal(ctx context.Context, after uint64, limit int) (lines []conservation.Line, last uint64, err error) {
	limit = max(1, min(limit, wire.MaxPage))
	page, err := call[wire.JournalPage](ctx, l, http.MethodGet, fmt.Sprintf("%s?after=%d&limit=%d", wire.JournalPath, after, limit), nil)
	if err == nil {
		lines, err = readPage(page, after, limit)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("trading: read the journal after line %d: %w", after, err)
	}
	return lines, page.Last, nil
}

// Line returns one line of the journal. exists is false if the journal ends before it.
func (l *Ledger) Line(ctx context.Context, number uint64) (e transfer.Entry, exists bool, err error) {
	lines, _, err := l.Journal(ctx, number-1, 1)
	if err != nil || len(lines) == 0 {
		return e, false, err
	}
	return lines[0].Entry, true, nil
}

// Entries returns a page of the journal after the given line, and the number of the last line.
func (l *Ledger) Entries(ctx context.Context, after uint64) (page []transfer.Entry, last uint64, err error) {
	lines, last, err := l.Journal(ctx, after, wire.MaxPage)
	for _, line := range lines {
		page = append(page, line.Entry)
	}
	return page, last, err
}

// readPage checks the page and reads its lines.
func readPage(page wire.JournalPage, after uint64, limit int) (lines []conservation.Line, err error) {
	switch end := after + uint64(len(page.Entries)); {
	case page.Entries == nil:
		return nil, errors.New("entries is missing: want a list, empty at the end")
	case len(page.Entries) > limit:
		return nil, fmt.Errorf("%d lines, want at most %d", len(page.Entries), limit)
	case end > after && page.Last < end:
		return nil, fmt.Errorf("lines up to %d, but the last is %d", end, page.Last)
	case end == after && page.Last > after:
		return nil, fmt.Errorf("no lines, but the last is %d", page.Last)
	}
	for i, line := range page.Entries {
		if want := after + uint64(i) + 1; line.Seq != want {
			return nil, fmt.Errorf("line %d where line %d should be", line.Seq, want)
		}
		e, err := line.Transfer()
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line.Seq, err)
		}
		one := conservation.Line{Entry: e, Mark: line.Mark()}
		if e.Op == wire.AddAsset {
			one.Precision = line.Precision
		}
		lines = append(lines, one)
	}
	return lines, nil
}

// Balance is one account's balance.
type Balance struct {
	UserID  int64
	AssetID int32
	Units   uint64
	Status  string // ACTIVE, FROZEN or DISABLED
}

// AllBalances returns all accounts, by user and asset, as they were exactly after the line seq. Each balance is
// the sum of the journal up to that line. A core keeps a view for some minutes. After that the error is a
// [*ProblemError] with VIEW_GONE, and the caller must begin again.
func (l *Ledger) AllBalances(ctx context.Context) (seq uint64, all []Balance, err error) {
	for next := ""; ; {
		path := wire.BalancesPath + "?limit=" + strconv.Itoa(wire.MaxPage)
		if next != "" {
			path += fmt.Sprintf("&at=%d&after=%s", seq, next)
		}
		page, err := call[wire.BalancesPage](ctx, l, http.MethodGet, path, nil)
		switch {
		case err != nil:
		case next != "" && page.Seq != seq:
			err = fmt.Errorf("they are of line %d, want line %d", page.Seq, seq)
		case page.Accounts == nil || page.Seq == 0 && len(page.Accounts) > 0:
			err = errors.New("accounts or seq is missing")
		default:
			all, err = appendBalances(all, page.Accounts)
		}
		if err != nil {
			return 0, nil, fmt.Errorf("trading: read the balances: %w", err)
		}
		if seq, next = page.Seq, page.Next; next == "" {
			return seq, all, nil
		}
	}
}

func appendBalances(all []Balance, page []wire.Balance) ([]Balance, error) {
	for _, b := range page {
		balance, err := parseBalance(b)
		if err != nil {
			return nil, err
		}
		all = append(all, balance)
	}
	return all, nil
}

// Balance returns the user's balance of the asset, and whether the account exists.
func (l *Ledger) Balance(ctx context.Context, userID int64, assetID int32) (b Balance, exists bool, err error) {
	got, err := call[wire.BalanceOfOne](ctx, l, http.MethodGet, fmt.Sprintf("%s/%d/%d", wire.BalancesPath, userID, assetID), nil)
	if problem, ok := errors.AsType[*ProblemError](err); ok && problem.Code == wire.AccountNotFound.Name {
		return Balance{}, false, nil
	}
	if err == nil {
		b, err = parseBalance(got.Account)
	}
	if err == nil && (b.UserID != userID || b.AssetID != assetID) {
		err = fmt.Errorf("the core answered for user %d, asset %d", b.UserID, b.AssetID)
	}
	if err != nil {
		return Balance{}, false, fmt.Errorf("trading: read the balance of user %d, asset %d: %w", userID, assetID, err)
	}
	return b, true, nil
}

// AccountStatus returns the status of the user's account in the asset; "": there is no account.
func (l *Ledger) AccountStatus(ctx context.Context, userID int64, assetID int32) (string, error) {
	b, exists, err := l.Balance(ctx, userID, assetID)
	if err == nil && exists && b.Status == "" {
		err = fmt.Errorf("trading: the account of user %d, asset %d has no status", userID, assetID)
	}
	return b.Status, err
}

func parseBalance(b wire.Balance) (Balance, error) {
	units, err := wire.ParseUnits(b.Units)
	if err == nil && (b.UserID <= 0 || b.AssetID <= 0) {
		err = fmt.Errorf("an account of user %d, asset %d", b.UserID, b.AssetID)
	}
	return Balance{UserID: b.UserID, AssetID: b.AssetID, Units: units, Status: b.Status}, err
}
