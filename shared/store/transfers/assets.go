package transfers

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/transfer"
)

const assetColumns = `
select asset_id, asset, precision, trunc(min_transfer_amount * 10::numeric ^ precision)::text,
       trunc(max_transfer_amount * 10::numeric ^ precision)::text,
       trunc(coalesce(daily_transfer_amount, 0) * 10::numeric ^ precision)::text,
       trunc(coalesce(daily_payout_amount, 0) * 10::numeric ^ precision)::text,
       status = 'ACTIVE', internal_transfer_enabled,
       payout_submitter is not null, coalesce(payout_submitter, ''), coalesce(chain_id, 0), coalesce(token_contract, ''), coalesce(chain_decimals, 0)
  from assets_tb`

func scanAsset(row pgx.Row) (transfer.Asset, error) {
	var a transfer.Asset
	var p transfer.PayoutTerms
	var least, most, daily, payoutDay string
	var pays bool
	err := row.Scan(&a.ID, &a.Name, &a.Precision, &least, &most, &daily, &payoutDay, &a.Active, &a.Enabled,
		&pays, &p.Submitter, &p.ChainID, &p.Token, &p.Decimals)
	if err != nil {
		return a, err
	}
	if pays {
		a.Payout = &p
	}
	for text, units := range map[*string]*uint64{&least: &a.MinUnits, &most: &a.MaxUnits, &daily: &a.DailyUnits, &payoutDay: &a.PayoutDay} {
		if *units, err = strconv.ParseUint(*text, 10, 64); err != nil {
			return a, fmt.Errorf("an amount of asset %s: %w", a.Name, err)
		}
	}
	return a, nil
}

// Asset returns the asset with that name; nil if there is none.
func (s *Store) Asset(ctx context.Context, name string) (*transfer.Asset, error) {
	a, err := scanAsset(s.db.QueryRow(ctx, assetColumns+` where asset = $1`, name))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find asset %s: %w", name, err)
	}
	return &a, nil
}

// Assets returns all assets by id.
func (s *Store) Assets(ctx context.Context) ([]transfer.Asset, error) {
	all, err := results.All(ctx, s.db, func(row pgx.CollectableRow) (transfer.Asset, error) { return scanAsset(row) }, assetColumns+` order by asset_id`)
	return all, results.Wrap(err, "list assets")
}

const putAsset = `
insert into assets_tb as a (asset_id, asset, precision, min_transfer_amount, max_transfer_amount, daily_transfer_amount, daily_payout_amount,
       status, internal_transfer_enabled, payout_submitter, chain_id, token_contract, chain_decimals)
values (@asset_id, @asset, @precision, @min_amount::text::numeric, @max_amount::text::numeric, nullif(@daily_amount::text::numeric, 0), nullif(@daily_payout::text::numeric, 0),
       case when @active then 'ACTIVE' else 'SUSPENDED' end, @enabled, nullif(@payer, ''), nullif(@chain_id::bigint, 0), nullif(@token, ''), @decimals)
    on conflict (asset_id) do update
   set asset = excluded.asset, precision = excluded.precision,
       min_transfer_amount = excluded.min_transfer_amount, max_transfer_amount = excluded.max_transfer_amount,
       daily_transfer_amount = excluded.daily_transfer_amount,
       daily_payout_amount = excluded.daily_payout_amount, status = excluded.status,
       internal_transfer_enabled = excluded.internal_transfer_enabled, payout_submitter = excluded.payout_submitter,
       chain_id = excluded.chain_id, token_contract = excluded.token_contract, chain_decimals = excluded.chain_decimals,
       updated_at = clock_timestamp()`

// PutAsset stores the asset, or changes its terms. The database refuses another name or precision for a
// known id, and contradictory terms. The error wraps [transfer.ErrRetired] for a retired payer.
func (s *Store) PutAsset(ctx context.Context, a transfer.Asset) error {
	var p transfer.PayoutTerms
	var decimals *int
	if a.Payout != nil {
		p, decimals = *a.Payout, &a.Payout.Decimals
	}
	amount := func(units uint64) string { return transfer.FormatUnits(units, a.Precision) }
	_, err := s.db.Exec(ctx, putAsset, store.NamedArgs{
		"asset_id":     a.ID,
		"asset":        a.Name,
		"precision":    a.Precision,
		"min_amount":   amount(a.MinUnits),
		"max_amount":   amount(a.MaxUnits),
		"daily_amount": amount(a.DailyUnits),
		"daily_payout": amount(a.PayoutDay),
		"active":       a.Active,
		"enabled":      a.Enabled,
		"payer":        p.Submitter,
		"chain_id":     int64(p.ChainID),
		"token":        p.Token,
		"decimals":     decimals,
	})
	return results.Wrap(refusedPayer(err), "store asset %s", a.Name)
}
