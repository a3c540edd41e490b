package trading

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Journal is what the core has answered after the line, in order of its lines, at
// most limit of them; none: that is all. Lines that move no money are left out,
// which leaves holes in the numbers; that none is missing otherwise is checked
// here. What is not durable is not shown.
func (l *Ledger) Journal(ctx context.Context, after uint64, limit int) ([]transfer.Entry, error) {
	limit = max(1, min(limit, wire.MaxPage))
	for {
		page, err := call[wire.JournalPage](ctx, l, http.MethodGet, fmt.Sprintf("%s?after=%d&limit=%d", wire.JournalPath, after, limit), nil)
		if err != nil {
			return nil, fmt.Errorf("trading: read the journal after line %d: %w", after, err)
		}
		entries, err := money(page, after, limit)
		if err != nil {
			return nil, fmt.Errorf("trading: read the journal after line %d: %w", after, err)
		}
		after += uint64(len(page.Entries))
		if len(entries) > 0 || len(page.Entries) == 0 {
			return entries, nil
		}
	}
}

// money checks the page whole and keeps the lines that move money.
func money(page wire.JournalPage, after uint64, limit int) (entries []transfer.Entry, err error) {
	if page.Entries == nil {
		return nil, errors.New("entries is missing: want a list, empty at the end")
	}
	if len(page.Entries) > limit {
		return nil, fmt.Errorf("%d lines, want at most %d", len(page.Entries), limit)
	}
	if end := after + uint64(len(page.Entries)); len(page.Entries) > 0 && page.Last < end {
		return nil, fmt.Errorf("lines up to %d, but the last is %d", end, page.Last)
	}
	if len(page.Entries) == 0 && page.Last > after {
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
		if wire.Moves(e.Op) {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// Balance is what one account holds.
type Balance struct {
	UserID  int64
	AssetID int32
	Units   uint64
	Status  string // ACTIVE, FROZEN or DISABLED
}

// Page is a part of all accounts, by user and asset, as they stood after exactly
// the line Seq: each holds what the journal up to that line adds up to.
type Page struct {
	Seq      uint64
	Balances []Balance
	Next     string // of the next page; empty: this was the last
}

// Balances is a page of at most limit accounts. The first has neither at nor next;
// the others have the first one's Seq and the Next of the page before. A core
// keeps what it pages for minutes; after that the error is a [*ProblemError] with
// VIEW_GONE, and the caller begins again.
func (l *Ledger) Balances(ctx context.Context, at uint64, next string, limit int) (Page, error) {
	path := wire.BalancesPath + "?limit=" + strconv.Itoa(max(1, min(limit, wire.MaxPage)))
	if next != "" {
		path += fmt.Sprintf("&at=%d&after=%s", at, next)
	}
	got, err := call[wire.BalancesPage](ctx, l, http.MethodGet, path, nil)
	if err != nil {
		return Page{}, fmt.Errorf("trading: read the balances: %w", err)
	}
	if next != "" && got.Seq != at {
		return Page{}, fmt.Errorf("trading: read the balances: they are of line %d, want line %d", got.Seq, at)
	}
	if got.Accounts == nil || got.Seq == 0 && len(got.Accounts) > 0 {
		return Page{}, errors.New("trading: read the balances: accounts or seq is missing")
	}
	page := Page{Seq: got.Seq, Next: got.Next}
	for _, b := range got.Accounts {
		balance, err := parseBalance(b)
		if err != nil {
			return Page{}, fmt.Errorf("trading: read the balances: %w", err)
		}
		page.Balances = append(page.Balances, balance)
	}
	return page, nil
}

// AllBalances are all pages, and the line after which they hold.
func (l *Ledger) AllBalances(ctx context.Context) (seq uint64, all []Balance, err error) {
	for next := ""; ; {
		page, err := l.Balances(ctx, seq, next, wire.MaxPage)
		if err != nil {
			return 0, nil, err
		}
		seq, next, all = page.Seq, page.Next, append(all, page.Balances...)
		if next == "" {
			return seq, all, nil
		}
	}
}

// Balance is what the user's account of the asset holds, and whether there is
// one.
func (l *Ledger) Balance(ctx context.Context, userID int64, assetID int32) (b Balance, exists bool, err error) {
	got, err := call[wire.BalanceOfOne](ctx, l, http.MethodGet, fmt.Sprintf("%s/%d/%d", wire.BalancesPath, userID, assetID), nil)
	var problem *ProblemError
	if errors.As(err, &problem) && problem.Code == wire.AccountNotFound.Name {
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

func parseBalance(b wire.Balance) (Balance, error) {
	units, err := wire.ParseUnits(b.Units)
	if err == nil && (b.UserID <= 0 || b.AssetID <= 0) {
		err = fmt.Errorf("an account of user %d, asset %d", b.UserID, b.AssetID)
	}
	return Balance{UserID: b.UserID, AssetID: b.AssetID, Units: units, Status: b.Status}, err
}
