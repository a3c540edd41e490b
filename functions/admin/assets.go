package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

// The statuses of an asset.
const (
	assetActive    = "ACTIVE"
	assetSuspended = "SUSPENDED"
)

// assetTerms is what an operator can set of an asset, with pointers where an absent member is not a zero.
type assetTerms struct {
	client.AssetTerms
	Precision *int         `json:"precision"`
	Status    *string      `json:"status"`
	Payout    *payoutTerms `json:"payout"`
}

// payoutTerms are the terms of payouts, of which the decimals are required.
type payoutTerms struct {
	client.AssetPayout
	Decimals *int `json:"decimals"`
}

type assetRequest struct {
	reasonRequest
	assetTerms
}

func viewOfAsset(a transfer.Asset) client.Asset {
	amount := func(units uint64) string {
		if units == 0 {
			return ""
		}
		return transfer.FormatUnits(units, a.Precision)
	}
	v := client.Asset{
		Asset: a.Name, AssetID: a.ID, Precision: a.Precision, MinTransfer: amount(a.MinUnits), MaxTransfer: amount(a.MaxUnits), DailyTransfer: amount(a.DailyUnits),
		DailyPayout: amount(a.PayoutDay), DailyServiceDeposits: amount(a.ServiceDay), Status: assetSuspended, InternalTransfers: a.Enabled,
	}
	if a.Active {
		v.Status = assetActive
	}
	if p := a.Payout; p != nil {
		v.Payout = &client.AssetPayout{Payer: p.Submitter, ChainID: p.ChainID, Token: p.Token, Decimals: p.Decimals}
	}
	return v
}

var assetName = regexp.MustCompile(`^[A-Z0-9][A-Z0-9._-]{0,31}$`)

func pathAsset(r *http.Request) (string, error) {
	name := r.PathValue("asset")
	if !assetName.MatchString(name) {
		return "", web.FieldProblem("asset", "is %.40q: want 1 to 32 capitals, digits, dots, hyphens and underscores", name)
	}
	return name, nil
}

// asset returns the asset that the terms describe. known is the asset as it is; nil: it is new. Payouts
// that stay as they are, are not checked again: an asset can be suspended whatever has become of its payer.
func (a *TransferServer) asset(name string, t assetTerms, known *transfer.Asset) (of transfer.Asset, err error) {
	of = transfer.Asset{ID: t.AssetID, Name: name, Active: t.Status == nil || *t.Status != assetSuspended, Enabled: t.InternalTransfers == nil || *t.InternalTransfers}
	switch {
	case t.AssetID <= 0:
		return of, web.FieldProblem("assetId", "is %d: want the asset's number in both ledgers, above 0", t.AssetID)
	case t.Precision == nil || *t.Precision < 0 || *t.Precision > transfer.MaxPrecision:
		return of, web.FieldProblem("precision", "is required: the number of decimals, 0 to %d; it never changes", transfer.MaxPrecision)
	case t.Status != nil && *t.Status != assetActive && *t.Status != assetSuspended:
		return of, web.FieldProblem("status", "is %.40q: want ACTIVE or SUSPENDED", *t.Status)
	}
	of.Precision = *t.Precision
	for _, amount := range []struct {
		field, text string
		units       *uint64
		required    bool
	}{
		{"minTransfer", t.MinTransfer, &of.MinUnits, true}, {"maxTransfer", t.MaxTransfer, &of.MaxUnits, true},
		{"dailyTransfer", t.DailyTransfer, &of.DailyUnits, false}, {"dailyPayout", t.DailyPayout, &of.PayoutDay, false},
		{"dailyServiceDeposits", t.DailyServiceDeposits, &of.ServiceDay, false},
	} {
		if amount.text == "" && !amount.required {
			continue
		}
		if *amount.units, err = unitsOf(amount.field, amount.text, of.Precision); err != nil {
			return of, err
		}
	}
	if err := checkLimits(of); err != nil {
		return of, err
	}
	of.Payout, err = a.payoutOf(t.Payout, of.Precision, known)
	return of, err
}

// unchangedPayout is the known asset's payout if the terms describe it; otherwise nil.
func unchangedPayout(t *payoutTerms, known *transfer.Asset) *transfer.PayoutTerms {
	if known == nil || known.Payout == nil {
		return nil
	}
	p := known.Payout
	if t.Payer != p.Submitter || t.Token != p.Token || t.ChainID != 0 && t.ChainID != p.ChainID || t.Decimals == nil || *t.Decimals != p.Decimals {
		return nil
	}
	return p
}

// unitsOf reads an amount of an asset with that precision.
func unitsOf(field, text string, precision int) (uint64, error) {
	amount, ok := transfer.ParseAmount(text)
	if !ok {
		return 0, web.FieldProblem(field, "is %.70q: want a decimal number above 0 as a string, such as \"12.5\"", text)
	}
	units, reason := amount.Units(precision)
	if reason != "" {
		return 0, web.FieldProblem(field, "is %.70q: want at most %d decimals, and at most 2^64-1 units of the last one", text, precision)
	}
	return units, nil
}

// checkLimits checks what the database demands of the amounts.
func checkLimits(of transfer.Asset) error {
	switch {
	case of.MaxUnits < of.MinUnits:
		return web.FieldProblem("maxTransfer", "is below minTransfer")
	case of.DailyUnits != 0 && of.DailyUnits < of.MinUnits:
		return web.FieldProblem("dailyTransfer", "is below minTransfer: no transfer would be possible; to stop transfers set internalTransfers to false")
	case of.PayoutDay != 0 && of.PayoutDay < of.MinUnits:
		return web.FieldProblem("dailyPayout", "is below minTransfer: no payout would be possible; to stop the asset set status to SUSPENDED")
	}
	return nil
}

// payoutOf checks the terms of payouts. The payer must be on a served chain.
func (a *TransferServer) payoutOf(t *payoutTerms, precision int, known *transfer.Asset) (*transfer.PayoutTerms, error) {
	if t == nil {
		return nil, nil
	}
	if same := unchangedPayout(t, known); same != nil {
		return same, nil
	}
	payer, err := a.Submitter("payout.payer", t.Payer)
	if err != nil {
		return nil, err
	}
	switch _, err := a.ChainOf(payer); {
	case err != nil:
		return nil, a.notServed("payout.payer", payer)
	case t.ChainID != 0 && t.ChainID != payer.ChainID():
		return nil, web.FieldProblem("payout.chainId", "is %d, and the payer is on chain %d: leave it out", t.ChainID, payer.ChainID())
	case t.Decimals == nil || *t.Decimals < precision || *t.Decimals > maxChainDecimals:
		return nil, web.FieldProblem("payout.decimals", "is required: the decimals of the token or coin on the chain, %d (the precision) to %d", precision, maxChainDecimals)
	}
	terms := transfer.PayoutTerms{Submitter: string(payer), ChainID: payer.ChainID(), Decimals: *t.Decimals}
	if t.Token != "" {
		token, err := payout.ParseAddress(a.Families, t.Token)
		if err != nil {
			return nil, web.FieldProblem("payout.token", "is not the address of a contract; leave it out for the chain's own coin")
		}
		terms.Token = token.String()
	}
	if _, _, err := payout.CheckTerms(a.Families, precision, terms); err != nil {
		return nil, web.FieldProblem("payout", "cannot be used: %v", err)
	}
	return &terms, nil
}

// maxChainDecimals is what the database takes.
const maxChainDecimals = 36

// checkPayer refuses a new payer that could not pay.
func (a *TransferServer) checkPayer(r *http.Request, of transfer.Asset, known *transfer.Asset) error {
	if of.Payout == nil || known != nil && known.Payout == of.Payout {
		return nil
	}
	s, err := a.Submitter("payout.payer", of.Payout.Submitter)
	if err != nil {
		return err
	}
	view, err := a.Store.Submitter(r.Context(), s)
	switch {
	case errors.Is(err, store.ErrUnknownSubmitter):
		return web.FieldProblem("payout.payer", "is not registered: POST /admin/v1/submitters with the callers [%q] first", store.PayoutCaller)
	case err != nil:
		return err
	case view.Retired():
		return web.FieldProblem("payout.payer", "is retired for ever: name another account")
	case len(view.Callers) != 1 || view.Callers[0] != store.PayoutCaller:
		return web.FieldProblem("payout.payer", "has the callers %q: want only [%q], which is settled at its registration: register another account with them", view.Callers, store.PayoutCaller)
	}
	return nil
}

// putAsset makes an asset known to both ledgers, or changes its terms. The core is called before the commit,
// since it can refuse the precision: a repeat of the call then has the same effect.
func (a *TransferServer) putAsset(w http.ResponseWriter, r *http.Request, c call[string, assetRequest]) error {
	known, err := a.Transfers.Store.Asset(r.Context(), c.on)
	if err != nil {
		return err
	}
	of, err := a.asset(c.on, c.body.assetTerms, known)
	if err != nil {
		return err
	}
	if err := a.checkPayer(r, of, known); err != nil {
		return err
	}
	change := transfers.AssetChange{Asset: of, By: c.by, Reason: c.reason, OnlyNarrower: mustPropose(r),
		Announce: func(ctx context.Context, now time.Time) error { return a.addToCore(ctx, of, now) }}
	changed, err := a.Transfers.Store.ChangeAsset(r.Context(), change)
	if errors.Is(err, transfers.ErrWiderAsset) {
		return a.propose(w, r, proposed{"asset", map[string]any{"asset": of.Name}, c.reason, describeAsset(of)})
	}
	if err != nil {
		return err
	}
	if changed {
		a.Log.WarnContext(r.Context(), "asset set", "asset", of.Name, "assetId", of.ID, "active", of.Active, "payout", of.Payout, "operator", c.by, "reason", c.reason)
	}
	return web.Reply(w, r, http.StatusOK, viewOfAsset(of))
}

// describeAsset names every term, since the second operator decides by this text.
func describeAsset(of transfer.Asset) string {
	amount := func(units uint64) string {
		if units == 0 {
			return "without a limit"
		}
		return transfer.FormatUnits(units, of.Precision)
	}
	service := "none"
	if of.ServiceDay > 0 {
		service = amount(of.ServiceDay)
	}
	text := fmt.Sprintf("sets asset %s (%d, precision %d, active %t, internal transfers %t) to transfers of %s to %s; a user's transfers a day %s, payouts a day %s; deposits of the service a day %s",
		of.Name, of.ID, of.Precision, of.Active, of.Enabled, amount(of.MinUnits), amount(of.MaxUnits), amount(of.DailyUnits), amount(of.PayoutDay), service)
	p := of.Payout
	if p == nil {
		return text + "; no payouts"
	}
	as := "the chain's own coin"
	if p.Token != "" {
		as = "the token " + p.Token
	}
	return text + fmt.Sprintf("; paid out by %s as %s with %d decimals", p.Submitter, as, p.Decimals)
}

// addToCore makes a new asset known to the trading core.
func (a *TransferServer) addToCore(ctx context.Context, of transfer.Asset, now time.Time) error {
	switch o := a.Trading.AddAsset(ctx, fmt.Sprintf("asset-%d-%d", of.ID, now.UnixMicro()), of.ID, uint8(of.Precision), now); o.Verdict {
	case transfer.Success:
		return nil
	case transfer.Refused:
		return web.FieldProblem("precision", "differs from the trading core's for assetId %d, which never changes: send the core's; nothing was changed", of.ID)
	default:
		return web.UnavailableBecause(o.Err, "the trading core gave no answer; nothing was changed here; send the same call again")
	}
}

// listAssets lists all assets by id.
func (a *TransferServer) listAssets(r *http.Request, q map[string]string) (serve.List, error) {
	page, next, err := a.Transfers.AssetPage(r.Context(), q)
	return serve.List{Name: "assets", Rows: serve.ViewsOf(page, viewOfAsset), Next: next}, err
}
