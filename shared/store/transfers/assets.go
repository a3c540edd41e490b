package transfers

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/transfer"
)

const assetColumns = `
select asset_id, asset, precision, trunc(min_transfer_amount * 10::numeric ^ precision),
       trunc(max_transfer_amount * 10::numeric ^ precision),
       trunc(coalesce(daily_transfer_amount, 0) * 10::numeric ^ precision),
       trunc(coalesce(daily_payout_amount, 0) * 10::numeric ^ precision),
       trunc(coalesce(daily_service_deposits, 0) * 10::numeric ^ precision),
       status = 'ACTIVE', internal_transfer_enabled,
       payout_submitter is not null, coalesce(payout_submitter, ''), coalesce(chain_id, 0), coalesce(token_contract, ''), coalesce(chain_decimals, 0)
  from assets_tb`

func scanAsset(row pgx.CollectableRow) (transfer.Asset, error) {
	var a transfer.Asset
	var p transfer.PayoutTerms
	var pays bool
	err := row.Scan(&a.ID, &a.Name, &a.Precision, &a.MinUnits, &a.MaxUnits, &a.DailyUnits, &a.PayoutDay, &a.ServiceDay, &a.Active, &a.Enabled,
		&pays, &p.Submitter, &p.ChainID, &p.Token, &p.Decimals)
	if pays {
		a.Payout = &p
	}
	return a, err
}

// Asset returns the asset with that name; nil if there is none.
func (s *Store) Asset(ctx context.Context, name string) (*transfer.Asset, error) {
	found, err := results.All(ctx, s.db, scanAsset, assetColumns+` where asset = $1`, name)
	if len(found) == 0 {
		return nil, results.Wrap(err, "find asset %s", name)
	}
	return &found[0], nil
}

const putAsset = `
insert into assets_tb as a (asset_id, asset, precision, min_transfer_amount, max_transfer_amount, daily_transfer_amount, daily_payout_amount,
       daily_service_deposits, status, internal_transfer_enabled, payout_submitter, chain_id, token_contract, chain_decimals)
values (@asset_id, @asset, @precision, @min_amount::text::numeric, @max_amount::text::numeric, nullif(@daily_amount::text::numeric, 0), nullif(@daily_payout::text::numeric, 0),
       nullif(@service_day::text::numeric, 0), case when @active then 'ACTIVE' else 'SUSPENDED' end, @enabled, nullif(@payer, ''), nullif(@chain_id::bigint, 0), nullif(@token, ''), @decimals)
    on conflict (asset_id) do update
   set asset = excluded.asset, precision = excluded.precision,
       min_transfer_amount = excluded.min_transfer_amount, max_transfer_amount = excluded.max_transfer_amount,
       daily_transfer_amount = excluded.daily_transfer_amount,
       daily_payout_amount = excluded.daily_payout_amount, daily_service_deposits = excluded.daily_service_deposits, status = excluded.status,
       internal_transfer_enabled = excluded.internal_transfer_enabled, payout_submitter = excluded.payout_submitter,
       chain_id = excluded.chain_id, token_contract = excluded.token_contract, chain_decimals = excluded.chain_decimals,
       updated_at = clock_timestamp()`

// PutAsset stores the asset, or changes its terms. The database refuses another name or precision for a
// known id, and contradictory terms. The error wraps [transfer.ErrRetired] for a retired payer.
func (s *Store) PutAsset(ctx context.Context, a transfer.Asset) error {
	_, err := s.db.Exec(ctx, putAsset, assetArgs(a))
	return results.Wrap(refusedPayer(err), "store asset %s", a.Name)
}

func assetArgs(a transfer.Asset) store.NamedArgs {
	var p transfer.PayoutTerms
	var decimals *int
	if a.Payout != nil {
		p, decimals = *a.Payout, &a.Payout.Decimals
	}
	amount := func(units uint64) string { return transfer.FormatUnits(units, a.Precision) }
	return store.NamedArgs{
		"asset_id":     a.ID,
		"asset":        a.Name,
		"precision":    a.Precision,
		"min_amount":   amount(a.MinUnits),
		"max_amount":   amount(a.MaxUnits),
		"daily_amount": amount(a.DailyUnits),
		"daily_payout": amount(a.PayoutDay),
		"service_day":  amount(a.ServiceDay),
		"active":       a.Active,
		"enabled":      a.Enabled,
		"payer":        p.Submitter,
		"chain_id":     int64(p.ChainID),
		"token":        p.Token,
		"decimals":     decimals,
	}
}

// AssetChange is an operator's change of an asset, or a new asset.
type AssetChange struct {
	Asset  transfer.Asset
	By     string
	Reason string

	OnlyNarrower bool // only what suspends the asset, or its transfers: see [ErrWiderAsset]

	// Announce makes a new asset known to the trading core, under a time of the database. It is called when
	// nothing else forbids the change. Its error stops the change.
	Announce func(ctx context.Context, now time.Time) error
}

// The errors of [Store.ChangeAsset]. Nothing was changed.
var (
	ErrAssetDiffers  = errors.New("the asset has another id or precision, or the id is another asset's")
	ErrTermsFixed    = errors.New("the asset has entries: its chain, token and decimals stay")
	ErrPayerIsPaying = errors.New("the asset has open payouts: its payer stays until they have ended")
	ErrWiderAsset    = errors.New("the change does more than suspend the asset")
)

const (
	lockAsset   = `select lock_for_act('asset ' || $1)`
	assetOfName = assetColumns + ` where asset = $1 or asset_id = $2 order by asset = $1 desc for no key update`
	recordAsset = `
insert into asset_change (asset_id, by, reason, before, after)
select a.asset_id, $2, $3, $4, to_jsonb(a) from assets_tb a where a.asset_id = $1`
)

// ChangeAsset stores the asset with a record of the change. The same terms again change nothing. The
// error wraps [ErrAssetDiffers], [ErrTermsFixed], [ErrPayerIsPaying], [ErrWiderAsset] or
// [transfer.ErrForeign].
func (s *Store) ChangeAsset(ctx context.Context, c AssetChange) (changed bool, err error) {
	err = store.BeginCarrying(ctx, s.db, func(tx pgx.Tx) (err error) {
		changed, err = changeAsset(ctx, tx, c)
		return err
	})
	return changed, results.Wrap(termsError(refusedPayer(err)), "change asset %s", c.Asset.Name)
}

func changeAsset(ctx context.Context, tx pgx.Tx, c AssetChange) (bool, error) {
	if err := store.RequireAccepted(ctx, tx, transfer.ErrForeign); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, lockAsset, c.Asset.Name); err != nil {
		return false, err
	}
	known, err := results.All(ctx, tx, scanAsset, assetOfName, c.Asset.Name, c.Asset.ID)
	if err != nil {
		return false, err
	}
	if err := c.check(known); err != nil {
		return false, err
	}
	if len(known) > 0 && reflect.DeepEqual(known[0], c.Asset) {
		return false, nil
	}
	if len(known) == 0 && c.Announce != nil {
		if err := announce(ctx, tx, c); err != nil {
			return false, err
		}
	}
	var before []byte
	if len(known) > 0 {
		if err := tx.QueryRow(ctx, `select to_jsonb(a) from assets_tb a where a.asset_id = $1`, c.Asset.ID).Scan(&before); err != nil {
			return false, err
		}
	}
	if _, err := tx.Exec(ctx, putAsset, assetArgs(c.Asset)); err != nil {
		return false, err
	}
	_, err = tx.Exec(ctx, recordAsset, c.Asset.ID, c.By, store.PrintableText(c.Reason), before)
	return err == nil, err
}

// announce calls the core while the transaction holds the asset's lock, and the proposal that it carries out.
func announce(ctx context.Context, tx pgx.Tx, c AssetChange) error {
	var now time.Time
	if err := tx.QueryRow(ctx, `select date_trunc('milliseconds', clock_timestamp())`).Scan(&now); err != nil {
		return err
	}
	return store.AwaitLedger(ctx, tx, func(ctx context.Context) error { return c.Announce(ctx, now) })
}

// check refuses a change that the stored assets of its name and id forbid.
func (c AssetChange) check(known []transfer.Asset) error {
	if len(known) == 0 {
		if c.OnlyNarrower {
			return ErrWiderAsset
		}
		return nil
	}
	now := known[0]
	if len(known) > 1 || now.Name != c.Asset.Name || now.ID != c.Asset.ID || now.Precision != c.Asset.Precision {
		return ErrAssetDiffers
	}
	suspended := now
	suspended.Active, suspended.Enabled = now.Active && c.Asset.Active, now.Enabled && c.Asset.Enabled
	if c.OnlyNarrower && !reflect.DeepEqual(suspended, c.Asset) {
		return ErrWiderAsset
	}
	return nil
}

// termsError names the refusals of the database's guard_asset_terms.
func termsError(err error) error {
	switch pg := results.Refusal(err); {
	case pg.Code != termsCode:
		return err
	case pg.ConstraintName == "payer_of_open_payouts":
		return ErrPayerIsPaying
	}
	return ErrTermsFixed
}

const assetPage = assetColumns + ` where asset_id > $1 order by asset_id limit $2`

// AssetPage returns at most limit assets with ids above after.
func (s *Store) AssetPage(ctx context.Context, after int64, limit int) ([]transfer.Asset, error) {
	all, err := results.All(ctx, s.db, scanAsset, assetPage, after, limit)
	return all, results.Wrap(err, "list assets")
}

const fundingOf = `
select asset_id, trunc(available * 10::numeric ^ precision), status
  from balances_tb
 where user_id = $1 and asset_id = any($2) and account_type = 'FUNDING'`

// FundingOf returns the user's Funding accounts in the assets, by asset id.
func (s *Store) FundingOf(ctx context.Context, userID int64, assets []int32) (map[int32]FundingAccount, error) {
	found := map[int32]FundingAccount{}
	var id int32
	var a FundingAccount
	err := results.ForEach(ctx, s.db, []any{&id, &a.Units, &a.Status}, func() { found[id] = a }, fundingOf, userID, assets)
	return found, results.Wrap(err, "read the Funding accounts of user %d", userID)
}

// FundingAccount is an account in Funding.
type FundingAccount struct {
	Units  uint64
	Status string
}
