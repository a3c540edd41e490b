package transfers

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/transfer"
)

// lockUsers serializes the creates of each user if a limit must be kept: the counts then stay valid until
// the commit. The user's address list is changed under the same lock. The locks are taken in the order
// of the users.
const lockUsers = `
select ` + lockOfUser + `u.user_id, 0))
  from (select distinct c.user_id
          from unnest(@users::bigint[], @limited::boolean[], @assets::text[], @pays::boolean[]) as c (user_id, limited, asset, pays)
         where c.limited or exists (select from assets_tb a where a.asset = c.asset and (a.daily_transfer_amount is not null or c.pays and a.daily_payout_amount is not null))
         order by c.user_id) as u (user_id)`

// userLock takes the lock of user $1 until the commit.
const (
	lockOfUser = `pg_advisory_xact_lock(hashtextextended('limits of user ' || `
	userLock   = lockOfUser + `$1::bigint, 0))`
)

// insertTransfers stores what [transfer.Request.Check] and [transfer.CheckLimits] would accept,
// evaluated at the time of the insert. A limit counts the transfers stored before the statement. So of
// several creates of a user whom a limit concerns it stores only the first.
var insertTransfers = `
insert into transfers_tb as t (req_id, cid, user_id, asset_id, amount, precision, transfer_type, source_type,
       payout_submitter, payout_chain_id, payout_token, payout_address, payout_base_units, payout_payload)
select r.req_id, nullif(r.cid, ''), r.user_id, a.asset_id, r.amount, a.precision, r.type, case r.type when 2 then 2 else 1 end,
       p.submitter, p.chain_id, p.token, p.address, p.base_units, p.payload
  from ` + store.RecordSet(creationColumns, 0, "r") + `
  join assets_tb a on a.asset = r.asset
  left join lateral (select nullif(r.payer, '') as submitter, r.chain_id, nullif(r.token, '') as token, r.address,
                            r.base_units, r.payload::jsonb as payload) as p on r.type = 3
 where a.status = 'ACTIVE'
   and r.decimals <= a.precision
   and r.amount between a.min_transfer_amount and a.max_transfer_amount
   and r.amount * 10::numeric ^ a.precision <= r.max_units
   and case when r.type <> 3 then a.internal_transfer_enabled
       else a.payout_submitter = p.submitter and a.chain_id = p.chain_id and a.token_contract is not distinct from p.token
        and p.base_units = r.amount * 10::numeric ^ a.chain_decimals
        and ` + mayPay + ` end
   and (select is_accepted_database())
   and not exists (select from transfer_halt h
         where h.resumed_at is null and (h.scope = 'all' or h.asset_id = a.asset_id and coalesce(h.user_id = r.user_id, true)))
   and (r.number = 1 or r.per_second = 0 and r.per_day = 0 and a.daily_transfer_amount is null and (r.type <> 3 or a.daily_payout_amount is null))
   and (r.per_second = 0 or (` + countSince + `interval '1 second' limit r.per_second) as c) < r.per_second)
   and (r.per_day = 0 or (` + countSince + `interval '24 hours' limit r.per_day) as c) < r.per_day)
   and (a.daily_transfer_amount is null or r.amount + (` + sumOfDay + `) <= a.daily_transfer_amount)
   and (r.type <> 3 or a.daily_payout_amount is null
        or r.amount + (` + sumOfDay + ` and d.transfer_type = 3) <= a.daily_payout_amount)
   and (r.type <> 3 or not r.listed_only or exists (
        select from payout_address x
         where x.user_id = r.user_id and x.chain_id = p.chain_id and x.address = p.address and x.removed_at is null
           and ` + usableAfter + ` + r.delay <= clock_timestamp()))
 order by r.place
    on conflict do nothing` + returningTransfer

// mayPay is true if the payer can pay: registered for the coordinator alone, not suspended, and not in
// PROTECT.
const mayPay = `exists (select from submitter s
                     where s.submitter = p.submitter and s.callers = array['` + store.PayoutCaller + `'] and s.status = 'ACTIVE')
        and not exists (select from protect_incident e where e.submitter = p.submitter and e.closed_at is null)`

const (
	countSince = `select count(*) from (select from transfers_tb where user_id = r.user_id and created_at > (select clock_timestamp()) - `
	sumOfDay   = `
select coalesce(sum(d.amount), 0) from transfers_tb d
 where d.user_id = r.user_id and d.created_at > (select clock_timestamp()) - interval '24 hours'
   and d.asset_id = a.asset_id and d.state not in (-10, -30)`
)

// findCreated searches by the cid first. It must be a later statement than the insert: in the same one
// it would miss a concurrent duplicate that has just committed.
//
// It selects the first of the user's rows from the cid on, not the row with the cid. Only the right
// index can answer that, whatever number of rows the planner expects for a user. The limit keeps the
// planner from joining all rows.
const findCreated = transferList + `, i.place
  from unnest($1::bigint[], $2::text[], $3::text[]) with ordinality as i (user_id, cid, req_id, place)
 cross join lateral (
       select s.* from transfers_tb s
        where s.transfer_id = coalesce(
              (select f.transfer_id
                 from (select transfer_id, cid from transfers_tb where user_id = i.user_id and cid >= i.cid order by cid limit 1) as f
                where f.cid = i.cid),
              (select transfer_id from transfers_tb where req_id = i.req_id))
        limit 1) as t
  join assets_tb a using (asset_id)`

// creation is a request to store, with the values that the statements need.
type creation struct {
	transfer.Request
	terms    transfer.Terms
	kind     transfer.Type
	possible bool // else nothing is inserted: it can only be stored already
	number   int  // among the user's in this transaction, from 1 on
}

func newCreation(r transfer.Request, terms transfer.Terms) *creation {
	kind, reason := transfer.CheckAccounts(r.From, r.To, r.Payout != nil)
	possible := reason == "" && r.Amount.Decimals() <= transfer.MaxPrecision && r.Amount != (transfer.Amount{})
	return &creation{Request: r, terms: terms, kind: kind, possible: possible}
}

// compareKeys orders creations by the key for which an insert can wait.
func compareKeys(a, b *creation) int {
	return cmp.Or(cmp.Compare(a.UserID, b.UserID), cmp.Compare(a.CID, b.CID), cmp.Compare(a.ReqID, b.ReqID))
}

// numberCreations numbers those of each user. They are in the order of their keys.
func numberCreations(all []*creation) {
	for i, c := range all {
		c.number = 1
		if i > 0 && all[i-1].UserID == c.UserID {
			c.number = all[i-1].number + 1
		}
	}
}

// payout is what the request pays out; of an ordinary transfer what the statement ignores.
func (c *creation) payout() transfer.Payout {
	if c.Payout == nil {
		return transfer.Payout{BaseUnits: "1", Payload: []byte("{}")}
	}
	return *c.Payout
}

// creationColumns are what a creation gives to [insertTransfers].
var creationColumns = []store.RecordColumn[*creation]{
	store.RecordValue("req_id", "text", func(c **creation) string { return (*c).ReqID }),
	store.RecordValue("cid", "text", func(c **creation) string { return (*c).CID }),
	store.RecordValue("user_id", "bigint", func(c **creation) int64 { return (*c).UserID }),
	store.RecordValue("asset", "text", func(c **creation) string { return (*c).Asset }),
	store.RecordValue("type", "smallint", func(c **creation) transfer.Type { return (*c).kind }),
	store.RecordValue("amount", "numeric", func(c **creation) string { return (*c).Amount.String() }),
	store.RecordValue("decimals", "integer", func(c **creation) int { return (*c).Amount.Decimals() }),
	store.RecordValue("max_units", "numeric", func(c **creation) string {
		return strconv.FormatUint(^uint64(0)/max((*c).terms.SafetyFactor, 1), 10)
	}),
	store.RecordValue("per_second", "integer", func(c **creation) int { return (*c).terms.Limits.PerSecond }),
	store.RecordValue("per_day", "integer", func(c **creation) int { return (*c).terms.Limits.PerDay }),
	store.RecordValue("listed_only", "boolean", func(c **creation) bool { return (*c).terms.Addresses.Required }),
	store.RecordValue("delay", "interval", func(c **creation) time.Duration { return (*c).terms.Addresses.Delay }),
	store.RecordValue("number", "integer", func(c **creation) int { return (*c).number }),
	store.RecordValue("payer", "text", func(c **creation) string { return (*c).payout().Submitter }),
	store.RecordValue("chain_id", "bigint", func(c **creation) int64 { return int64((*c).payout().ChainID) }),
	store.RecordValue("token", "text", func(c **creation) string { return (*c).payout().Token }),
	store.RecordValue("address", "text", func(c **creation) string { return (*c).payout().Address }),
	store.RecordValue("base_units", "numeric", func(c **creation) string { return (*c).payout().BaseUnits }),
	store.RecordValue("payload", "text", func(c **creation) string { return string((*c).payout().Payload) }),
}

func (t *transaction) queueUserLocks(b *pgx.Batch) {
	var users []int64
	var limited, pays []bool
	var assets []string
	for _, c := range t.creations {
		users, assets, pays = append(users, c.UserID), append(assets, c.Asset), append(pays, c.Payout != nil)
		limited = append(limited, c.terms.Limits != (transfer.Limits{}) || c.Payout != nil && c.terms.Addresses.Required)
	}
	b.Queue(lockUsers, store.NamedArgs{"users": users, "limited": limited, "assets": assets, "pays": pays})
}

// queueFinds reads the stored transfer of each request that was not inserted.
func (t *transaction) queueFinds(b *pgx.Batch) {
	var users []int64
	var cids, reqs []string
	var places []int
	for i, w := range t.all {
		if c := w.create; c != nil && !t.rows[i].found {
			users, cids, reqs, places = append(users, c.UserID), append(cids, c.CID), append(reqs, c.ReqID), append(places, i)
		}
	}
	if len(users) == 0 {
		return
	}
	b.Queue(findCreated, users, cids, reqs).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var place int
			found, err := scanTransferAnd(rows, &place)
			if err != nil {
				return err
			}
			t.rows[places[place-1]] = written{found: true, now: found}
		}
		return rows.Err()
	})
}

// Create implements [transfer.Store]: begin, insert, commit, in one round trip and one commit, shared with
// concurrent writes. Only a request that was not stored takes more round trips: one finds the stored transfer of
// its cid, and one the reason.
func (s *Store) Create(ctx context.Context, r transfer.Request, terms transfer.Terms) (transfer.Created, error) {
	got, err := s.writes.Do(ctx, write{create: newCreation(r, terms)})
	switch {
	case err != nil:
		return transfer.Created{}, fmt.Errorf("store transfer %s: %w", r.ReqID, refusedPayer(err))
	case !got.found:
		return transfer.Created{}, s.why(ctx, r, terms)
	case !r.Same(got.now):
		return transfer.Created{}, transfer.ErrCIDConflict
	}
	return transfer.Created{Transfer: got.now, New: got.now.ReqID == r.ReqID}, nil
}

// refusedPayer is [transfer.ErrRetired] if the database refused a payout or an asset because its payer is
// retired. It is [transfer.ErrMoved] if the payer was replaced since the asset was read, and otherwise err.
func refusedPayer(err error) error {
	switch results.Refusal(err).ConstraintName {
	case "retired_pays_nothing":
		return transfer.ErrRetired
	case "payout_of_the_payer":
		return transfer.ErrMoved
	}
	return err
}

// obstacles returns the conditions that can refuse a valid request, of user $1, asset $2 and payer $3.
const obstacles = `
select is_accepted_database(),
       exists (select from transfer_halt h left join assets_tb a using (asset_id)
                where h.resumed_at is null and (h.scope = 'all' or a.asset = $2 and coalesce(h.user_id = $1, true))),
       $3 <> '' and not (select ` + mayPay + ` from (select nullif($3, '') as submitter) as p),
       exists (select from submitter s where s.submitter = nullif($3, '') and s.status = 'RETIRED'),
       (select count(*) from (select from transfers_tb where user_id = $1
          and created_at > (select clock_timestamp()) - interval '1 second' limit $4) as c),
       (select count(*) from (select from transfers_tb where user_id = $1
          and created_at > (select clock_timestamp()) - interval '24 hours' limit $5) as c),
       (select coalesce(sum(d.units), 0)::text from transfers_tb d join assets_tb a using (asset_id)
         where d.user_id = $1 and a.asset = $2 and a.daily_transfer_amount is not null
           and d.created_at > (select clock_timestamp()) - interval '24 hours' and d.state not in (-10, -30))`

// why returns the reason for which a request was not stored.
func (s *Store) why(ctx context.Context, r transfer.Request, terms transfer.Terms) error {
	var ours, halted, mayNotPay, retired bool
	var counts transfer.Counts
	var dayUnits, payer string
	if r.Payout != nil {
		payer = r.Payout.Submitter
	}
	var asset *transfer.Asset
	var found payoutObstacles
	b := new(pgx.Batch)
	if r.Payout != nil {
		b.Queue(findPayoutObstacles, r.UserID, r.Asset, int64(r.Payout.ChainID), r.Payout.Address, terms.Addresses.Delay).QueryRow(results.Scan(&found.paidUnits, &found.usableFrom, &found.now))
	}
	b.Queue(obstacles, r.UserID, r.Asset, payer, terms.Limits.PerSecond, terms.Limits.PerDay).QueryRow(results.Scan(&ours, &halted, &mayNotPay, &retired, &counts.LastSecond, &counts.LastDay, &dayUnits))
	b.Queue(assetColumns+` where asset = $1`, r.Asset).Query(results.First(&asset, scanAsset))
	if err := s.send(ctx, b); err != nil {
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
	case retired:
		return transfer.ErrRetired
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
