package transfers

import (
	"context"
	"net/http"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

// The states of an account in a ledger.
const (
	accountOpen    = "OPEN"
	accountNone    = "NONE"    // the first deposit makes it
	accountUnknown = "UNKNOWN" // the ledger has not answered
)

// HasStatus reports whether the account is known to have the status, or to be absent where ACTIVE is wanted.
func HasStatus(s client.AccountSide, status string) bool {
	return s.State == accountOpen && s.Status == status || s.State == accountNone && status == transfer.StatusActive
}

// AccountPage returns a page of the user's accounts, or that in the asset q["asset"] alone.
func (a *Server) AccountPage(r *http.Request, user int64, q map[string]string) (page serve.List, err error) {
	var assets []transfer.Asset
	if q["asset"] != "" {
		asset, err := a.Store.Asset(r.Context(), q["asset"])
		if err == nil && asset == nil {
			err = web.FieldProblem("asset", "is %.40q, and no asset has that name", q["asset"])
		}
		if err != nil {
			return page, err
		}
		assets = []transfer.Asset{*asset}
	} else if assets, page.Next, err = a.AssetPage(r.Context(), q); err != nil {
		return page, err
	}
	page.Name = "accounts"
	page.Rows, err = a.Accounts(r.Context(), user, assets)
	return page, err
}

// AssetPage returns the page of assets that q asks for, by id, and the token of the next one.
func (a *Server) AssetPage(ctx context.Context, q map[string]string) (page []transfer.Asset, token string, err error) {
	return serve.Page(q, serve.AssetPlace, func(after int64, limit int) ([]transfer.Asset, error) {
		return a.Store.AssetPage(ctx, after, limit)
	}, func(of transfer.Asset) int64 { return int64(of.ID) })
}

// Accounts returns the user's accounts in the assets. If the trading core gives no answer, its other
// accounts are not asked for, and shown as UNKNOWN.
func (a *Server) Accounts(ctx context.Context, user int64, assets []transfer.Asset) ([]client.Account, error) {
	funding, err := a.Store.FundingOf(ctx, user, serve.ViewsOf(assets, func(of transfer.Asset) int32 { return of.ID }))
	if err != nil {
		return nil, err
	}
	all, silent := make([]client.Account, len(assets)), error(nil)
	for i, of := range assets {
		all[i] = client.Account{UserID: user, Asset: of.Name, AssetID: of.ID, Funding: client.AccountSide{State: accountNone}, Spot: client.AccountSide{State: accountUnknown}}
		if own, ok := funding[of.ID]; ok {
			all[i].Funding = side(own.Units, own.Status, of)
		}
		if silent == nil {
			all[i].Spot, silent = a.spotOf(ctx, user, of)
		}
	}
	if silent != nil {
		a.Log.WarnContext(ctx, "accounts in the trading core not shown", "userId", user, "error", silent.Error())
	}
	return all, nil
}

func (a *Server) spotOf(ctx context.Context, user int64, of transfer.Asset) (client.AccountSide, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Acts.Timeout)
	defer cancel()
	b, exists, err := a.Spot(ctx, user, of.ID)
	switch {
	case err != nil:
		return client.AccountSide{State: accountUnknown}, err
	case !exists:
		return client.AccountSide{State: accountNone}, nil
	}
	return side(b.Units, b.Status, of), nil
}

func side(units uint64, status string, of transfer.Asset) client.AccountSide {
	return client.AccountSide{State: accountOpen, Available: transfer.FormatUnits(units, of.Precision), Status: status}
}
