package transfers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
)

// lockUser serializes the creates of one user if a limit must be kept: the counts then stay valid until
// the commit. The user's address list is changed under the same lock.
const lockUser = `
select ` + userLock + `
 where $2 or exists (select from assets_tb where asset = $3 and (daily_transfer_amount is not null or $4 and daily_payout_amount is not null))`

// userLock takes the lock of user $1 until the commit.
const userLock = `pg_advisory_xact_lock(hashtextextended('limits of user ' || $1::bigint, 0))`

// insertTransfer stores what [transfer.Request.Check] and [transfer.CheckLimits] would accept,
// evaluated at the time of the insert.
const insertTransfer = `
insert into transfers_tb (req_id, cid, user_id, asset_id, amount, precision, transfer_type, source_type,
       payout_submitter, payout_chain_id, payout_token, payout_address, payout_base_units, payout_payload)
select @req_id, nullif(@cid, ''), @user_id, a.asset_id, r.amount, a.precision, @type, case @type::smallint when 2 then 2 else 1 end,
       p.submitter, p.chain_id, p.token, p.address, p.base_units, p.payload
  from (select @amount::text::numeric as amount) as r
  join assets_tb a on a.asset = @asset
  left join (select nullif(@payer, '') as submitter, @chain_id::bigint as chain_id, nullif(@token, '') as token, @address as address,
                    @base_units::text::numeric as base_units, @payload::text::jsonb as payload) as p on @type::smallint = 3
 where a.status = 'ACTIVE'
   and @decimals::integer <= a.precision
   and r.amount between a.min_transfer_amount and a.max_transfer_amount
   and r.amount * 10::numeric ^ a.precision <= @max_units::text::numeric
   and case when @type::smallint <> 3 then a.internal_transfer_enabled
       else a.payout_submitter = p.submitter and a.chain_id = p.chain_id and a.token_contract is not distinct from p.token
        and p.base_units = r.amount * 10::numeric ^ a.chain_decimals
        and ` + mayPay + ` end
   and (select is_accepted_database())
   and not exists (select from transfer_halt h
         where h.resumed_at is null and (h.scope = 'all' or h.asset_id = a.asset_id and coalesce(h.user_id = @user_id, true)))
   and (@per_second::integer = 0 or (` + countSince + `interval '1 second' limit @per_second) as c) < @per_second)
   and (@per_day::integer = 0 or (` + countSince + `interval '24 hours' limit @per_day) as c) < @per_day)
   and (a.daily_transfer_amount is null or r.amount + (` + sumOfDay + `) <= a.daily_transfer_amount)
   and (@type::smallint <> 3 or a.daily_payout_amount is null
        or r.amount + (` + sumOfDay + ` and d.transfer_type = 3) <= a.daily_payout_amount)
   and (@type::smallint <> 3 or not @listed_only::boolean or exists (
        select from payout_address x
         where x.user_id = @user_id and x.chain_id = p.chain_id and x.address = p.address and x.removed_at is null
           and ` + usableAfter + ` + @delay::interval <= clock_timestamp()))
    on conflict do nothing`

// mayPay is true if the payer can pay: registered for the coordinator alone, not suspended, and not in
// PROTECT.
const mayPay = `exists (select from submitter s
                     where s.submitter = p.submitter and s.callers = array['` + store.PayoutCaller + `'] and s.status = 'ACTIVE')
        and not exists (select from protect_incident e where e.submitter = p.submitter and e.closed_at is null)`

const (
	countSince = `select count(*) from (select from transfers_tb where user_id = @user_id and created_at > (select clock_timestamp()) - `
	sumOfDay   = `
select coalesce(sum(d.amount), 0) from transfers_tb d
 where d.user_id = @user_id and d.created_at > (select clock_timestamp()) - interval '24 hours'
   and d.asset_id = a.asset_id and d.state not in (-10, -30)`
)

// findCreated searches by the cid first. It must be a later statement than the insert: in the same one
// it would miss a concurrent duplicate that has just committed.
//
// It selects the first of the user's rows from the cid on, not the row with the cid. Only the right
// index can answer that, whatever number of rows the planner expects for a user.
const findCreated = transferColumns + `
 where t.transfer_id = coalesce(
       (select f.transfer_id
          from (select transfer_id, cid from transfers_tb where user_id = $1 and cid >= $2 order by cid limit 1) as f
         where f.cid = $2),
       (select transfer_id from transfers_tb where req_id = $3))`

// Create implements [transfer.Store]: begin, insert, commit, select, in one round trip and one commit.
// Only a request that was not stored takes another round trip, which finds the reason.
func (s *Store) Create(ctx context.Context, r transfer.Request, terms transfer.Terms) (transfer.Created, error) {
	var found transfer.Transfer
	var err error
	b := new(pgx.Batch)
	kind, reason := transfer.CheckAccounts(r.From, r.To, r.Payout != nil)
	if reason == "" && r.Amount.Decimals() <= transfer.MaxPrecision && r.Amount != (transfer.Amount{}) {
		b.Queue("begin")
		pays := r.Payout != nil
		b.Queue(lockUser, r.UserID, terms.Limits != (transfer.Limits{}) || pays && terms.Addresses.Required, r.Asset, pays)
		b.Queue(insertTransfer, insertArgs(r, kind, terms))
		b.Queue("commit")
	}
	b.Queue(findCreated, r.UserID, r.CID, r.ReqID).QueryRow(func(row pgx.Row) (err error) {
		found, err = scanTransfer(row)
		return err
	})
	err = s.send(ctx, b)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return transfer.Created{}, s.why(ctx, r, terms)
	case err != nil:
		return transfer.Created{}, fmt.Errorf("store transfer %s: %w", r.ReqID, err)
	case !r.Same(found):
		return transfer.Created{}, transfer.ErrCIDConflict
	}
	return transfer.Created{Transfer: found, New: found.ReqID == r.ReqID}, nil
}

func insertArgs(r transfer.Request, kind transfer.Type, terms transfer.Terms) store.NamedArgs {
	most := strconv.FormatUint(^uint64(0)/max(terms.SafetyFactor, 1), 10)
	p := transfer.Payout{BaseUnits: "1", Payload: []byte("{}")}
	if r.Payout != nil {
		p = *r.Payout
	}
	return store.NamedArgs{
		"req_id": r.ReqID, "cid": r.CID, "user_id": r.UserID, "asset": r.Asset, "type": kind,
		"amount": r.Amount.String(), "decimals": r.Amount.Decimals(), "max_units": most,
		"payer": p.Submitter, "chain_id": int64(p.ChainID), "token": p.Token, "address": p.Address,
		"base_units": p.BaseUnits, "payload": string(p.Payload),
		"per_second": terms.Limits.PerSecond, "per_day": terms.Limits.PerDay,
		"listed_only": terms.Addresses.Required, "delay": terms.Addresses.Delay,
	}
}

// obstacles returns the conditions that can refuse a valid request, of user $1, asset $2 and payer $3.
const obstacles = `
select is_accepted_database(),
       exists (select from transfer_halt h left join assets_tb a using (asset_id)
                where h.resumed_at is null and (h.scope = 'all' or a.asset = $2 and coalesce(h.user_id = $1, true))),
       $3 <> '' and not (select ` + mayPay + ` from (select nullif($3, '') as submitter) as p),
       (select count(*) from (select from transfers_tb where user_id = $1
          and created_at > (select clock_timestamp()) - interval '1 second' limit $4) as c),
       (select count(*) from (select from transfers_tb where user_id = $1
          and created_at > (select clock_timestamp()) - interval '24 hours' limit $5) as c),
       (select coalesce(sum(d.units), 0)::text from transfers_tb d join assets_tb a using (asset_id)
         where d.user_id = $1 and a.asset = $2 and a.daily_transfer_amount is not null
           and d.created_at > (select clock_timestamp()) - interval '24 hours' and d.state not in (-10, -30))`

// why returns the reason for which a request was not stored.
func (s *Store) why(ctx context.Context, r transfer.Request, terms transfer.Terms) error {
	var ours, halted, mayNotPay bool
	var counts transfer.Counts
	var dayUnits, payer string
	if r.Payout != nil {
		payer = r.Payout.Submitter
	}
	var asset *transfer.Asset
	var found payoutObstacles
	b := new(pgx.Batch)
	if r.Payout != nil {
		b.Queue(findPayoutObstacles, r.UserID, r.Asset, int64(r.Payout.ChainID), r.Payout.Address, terms.Addresses.Delay).QueryRow(found.scan)
	}
	b.Queue(obstacles, r.UserID, r.Asset, payer, terms.Limits.PerSecond, terms.Limits.PerDay).QueryRow(func(row pgx.Row) error {
		return row.Scan(&ours, &halted, &mayNotPay, &counts.LastSecond, &counts.LastDay, &dayUnits)
	})
	b.Queue(assetColumns+` where asset = $1`, r.Asset).QueryRow(func(row pgx.Row) error {
		a, err := scanAsset(row)
		if err == nil {
			asset = &a
		}
		return err
	})
	if err := s.send(ctx, b); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("find out why transfer %s was not stored: %w", r.ReqID, err)
	}
	kind, units, reason := r.Check(asset, terms)
	switch {
	case !ours:
		return transfer.ErrForeign
	case reason != "":
		return transfer.RefusedError{Reason: reason}
	case halted:
		return transfer.ErrHalted
	case mayNotPay:
		return transfer.ErrProtected
	}
	counts.DayUnits = cappedUnits(dayUnits)
	if reason := transfer.CheckLimits(units, *asset, terms.Limits, counts); reason != "" {
		return transfer.RefusedError{Reason: reason}
	}
	if kind == transfer.FundingToChain && payer != "" {
		return found.why(units, *asset, terms.Addresses)
	}
	return transfer.ErrMoved
}

// findPayoutObstacles returns the payouts of asset $2 for user $1 in 24 hours. It also returns the
// time from which address $4 of chain $3 can be paid; null: it is not listed.
const findPayoutObstacles = `
select (select coalesce(sum(d.units), 0)::text from transfers_tb d join assets_tb a using (asset_id)
         where d.user_id = $1 and a.asset = $2 and d.transfer_type = 3
           and d.created_at > (select clock_timestamp()) - interval '24 hours' and d.state not in (-10, -30)),
       (select ` + usableAfter + ` + $5::interval from payout_address x
         where x.user_id = $1 and x.chain_id = $3 and x.address = $4 and x.removed_at is null),
       clock_timestamp()`

// payoutObstacles are the conditions that can refuse a payout beside [obstacles].
type payoutObstacles struct {
	paidUnits  string
	usableFrom *time.Time // of the address; nil: it is not listed
	now        time.Time
}

func (o *payoutObstacles) scan(row pgx.Row) error {
	return row.Scan(&o.paidUnits, &o.usableFrom, &o.now)
}

// why returns which of them refuses the payout of so many units.
func (o payoutObstacles) why(units uint64, a transfer.Asset, terms transfer.AddressTerms) error {
	switch {
	case terms.Required && o.usableFrom == nil:
		return transfer.RefusedError{Reason: transfer.AddressNotListed}
	case terms.Required && o.usableFrom.After(o.now):
		return transfer.RefusedError{Reason: transfer.AddressNotYetUsable, UsableFrom: *o.usableFrom}
	}
	left, reason := transfer.CheckPayoutDay(units, cappedUnits(o.paidUnits), a)
	if reason != "" {
		return transfer.RefusedError{Reason: reason, Left: transfer.FormatUnits(left, a.Precision)}
	}
	return transfer.ErrMoved
}

// cappedUnits reads a sum of units. A sum beyond 64 bits counts as more than any limit.
func cappedUnits(text string) uint64 {
	units, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return ^uint64(0)
	}
	return units
}
