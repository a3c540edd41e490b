package edge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/web"
)

func (s server) journal(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, err := parameters(r, "after", "limit")
	after := number(q, "after", 0, 1<<62, &err)
	limit := number(q, "limit", wire.DefaultPage, wire.MaxPage, &err)
	if atLeastOne(limit, &err); err != nil {
		return nil, err
	}
	page := wire.JournalPage{Entries: []wire.Entry{}}
	room := wire.MaxAnswer - pageFrame // bytes left in the answer
	page.Last, err = s.core.Journal(after, int(limit), func(e book.Entry) bool {
		line := e.Transfer()
		text, err := web.Encode(line) // its line break takes as much as a comma
		if room -= len(text); err != nil || room < 0 {
			return false
		}
		page.Entries = append(page.Entries, line)
		return true
	})
	return page, err
}

// pageFrame is an upper bound in bytes for the page without its lines.
const pageFrame = 64

func (s server) balances(_ http.ResponseWriter, r *http.Request) (any, error) {
	q, err := parameters(r, "at", "after", "limit")
	limit := number(q, "limit", wire.DefaultPage, wire.MaxPage, &err)
	after := parseCursor(q, &err)
	if atLeastOne(limit, &err); err != nil {
		return nil, err
	}
	view, err := s.view(r.Context(), q)
	if err != nil {
		return nil, err
	}
	page := wire.BalancesPage{Seq: view.Seq, Accounts: []wire.Balance{}}
	list, more := view.After(after, int(limit))
	for _, b := range list {
		page.Accounts = append(page.Accounts, balanceOf(b.AccountKey, b.Account))
	}
	if more {
		last := list[len(list)-1]
		page.Next = fmt.Sprintf("%d:%d", last.UserID, last.AssetID)
	}
	return page, nil
}

// view returns the view that the caller names, or a new one.
func (s server) view(ctx context.Context, q url.Values) (*core.View, error) {
	if !q.Has("at") {
		return s.core.NewView(ctx)
	}
	var err error
	at := number(q, "at", 0, 1<<62, &err)
	if err != nil {
		return nil, err
	}
	return s.core.ViewOf(at)
}

func (s server) balance(_ http.ResponseWriter, r *http.Request) (any, error) {
	_, err := parameters(r)
	path := url.Values{"userId": {r.PathValue("userId")}, "assetId": {r.PathValue("assetId")}}
	k := book.AccountKey{
		UserID:  int64(number(path, "userId", 0, 1<<63-1, &err)),
		AssetID: int32(number(path, "assetId", 0, 1<<31-1, &err)),
	}
	if err != nil {
		return nil, err
	}
	h, err := s.core.Balance(r.Context(), k)
	if err == nil && !h.Exists {
		err = web.NewProblem(wire.AccountNotFound, "the user has no account of this asset")
	}
	if err != nil {
		return nil, err
	}
	return wire.BalanceOfOne{Seq: h.Seq, Account: balanceOf(k, h.Account)}, nil
}

func balanceOf(k book.AccountKey, a book.Account) wire.Balance {
	return wire.Balance{UserID: k.UserID, AssetID: k.AssetID, Units: wire.FormatUnits(a.Units), Status: a.Status.String()}
}

// parameters returns the query's parameters. Each must be known and appear once.
func parameters(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, &wire.FieldError{Field: "query", Detail: "want name=value, joined by &"}
	}
	for name, values := range q {
		if !slices.Contains(known, name) {
			return nil, &wire.FieldError{Field: "query", Detail: "the parameters here are: " + strings.Join(known, ", ")}
		}
		if len(values) > 1 {
			return nil, &wire.FieldError{Field: name, Detail: "want it once"}
		}
	}
	return q, nil
}

// number returns a parameter between 0 and max, or absent if it is missing. It keeps the first
// error.
func number(q url.Values, name string, absent, max uint64, err *error) uint64 {
	if !q.Has(name) {
		return absent
	}
	n, wrong := strconv.ParseUint(q.Get(name), 10, 64)
	if (wrong != nil || n > max) && *err == nil {
		*err = &wire.FieldError{Field: name, Detail: fmt.Sprintf("want a whole number from 0 to %d", max)}
	}
	return n
}

// atLeastOne keeps the first error.
func atLeastOne(limit uint64, err *error) {
	if limit == 0 && *err == nil {
		*err = &wire.FieldError{Field: "limit", Detail: fmt.Sprintf("want 1 to %d", wire.MaxPage)}
	}
}

// parseCursor returns the account that the page follows; the zero key is before all accounts.
func parseCursor(q url.Values, err *error) (k book.AccountKey) {
	if !q.Has("after") {
		return k
	}
	user, asset, _ := strings.Cut(q.Get("after"), ":")
	u, errUser := strconv.ParseInt(user, 10, 64)
	a, errAsset := strconv.ParseInt(asset, 10, 32)
	if errors.Join(errUser, errAsset) != nil && *err == nil {
		*err = &wire.FieldError{Field: "after", Detail: "want the next of the page before"}
	}
	return book.AccountKey{UserID: u, AssetID: int32(a)}
}
