package transfers

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/transfer"
)

var _ transfer.ActStore = (*Store)(nil)

// The SQLSTATEs of migration 0019.
const (
	termsCode        = "FP021" // of guard_asset_terms
	serviceLimitCode = "FP022" // of order_money
)

// actColumns is a row as [scanAct] reads it, from account_act x and its assets_tb s.
const actColumns = `
select x.act_id, x.kind, coalesce(x.request_id, ''), coalesce(x.ledger, ''), x.user_id, x.asset_id, s.asset, s.precision, coalesce(x.units, 0),
       coalesce(x.status, ''), x.by, x.reason, x.of_service, x.at, coalesce(x.funding, ''), coalesce(x.trading, ''), coalesce(x.unknown, ''),
       coalesce(x.approved_by, ''), x.only_narrower, x.journal_read, clock_timestamp() - x.at`

const actRows = actColumns + `
  from account_act x
  join assets_tb s using (asset_id)`

func scanAct(row pgx.CollectableRow) (a transfer.Act, err error) {
	err = row.Scan(actTargets(&a)...)
	return a, err
}

func actTargets(a *transfer.Act) []any {
	return []any{
		&a.ID, &a.Kind, &a.RequestID, &a.Ledger, &a.UserID, &a.AssetID, &a.Asset, &a.Precision, &a.Units,
		&a.Status, &a.By, &a.Reason, &a.OfService, &a.At, &a.Funding, &a.Trading, &a.Unknown, &a.ApprovedBy, &a.OnlyNarrower, &a.JournalRead, &a.Age,
	}
}

// carrying runs a query of one row in a transaction that also carries out the context's proposal.
func (s *Store) carrying(ctx context.Context, targets []any, statement string, args ...any) error {
	return store.BeginCarrying(ctx, s.db, func(tx pgx.Tx) error { return tx.QueryRow(ctx, statement, args...).Scan(targets...) })
}

// orderMoney stores the order. same is false if another act has its id.
const orderMoney = actColumns + `, o.same
  from (select (m.act).*, m.same from order_money(@kind, @request, @ledger, @user_id, @asset_id, @units::text::numeric, @by, @reason, @of_service) as m) as o
 cross join lateral (select o.*) as x
  join assets_tb s on s.asset_id = x.asset_id`

// OrderMoney implements [transfer.ActStore].
func (s *Store) OrderMoney(ctx context.Context, o transfer.MoneyOrder) (a transfer.Act, err error) {
	var same bool
	err = s.carrying(ctx, append(actTargets(&a), &same), orderMoney, moneyArgs(o))
	return a, results.Wrap(moneyError(same, err), "order %s %s", o.Kind, o.RequestID)
}

// moneyArgs are the parameters of [orderMoney].
func moneyArgs(o transfer.MoneyOrder) store.NamedArgs {
	return store.NamedArgs{
		"kind": o.Kind, "request": o.RequestID, "ledger": o.Ledger, "user_id": o.UserID, "asset_id": o.AssetID,
		"units": strconv.FormatUint(o.Units, 10), "by": o.By, "reason": store.PrintableText(o.Reason), "of_service": o.OfService,
	}
}

// moneyError is the error of an order, as [transfer.ActStore] names it.
func moneyError(same bool, err error) error {
	switch pg := results.Refusal(err); {
	case errors.Is(err, pgx.ErrNoRows):
		return transfer.ErrForeign
	case pg.Code == serviceLimitCode:
		return transfer.ServiceLimitError{Left: pg.Detail}
	case err == nil && !same:
		return transfer.ErrActConflict
	}
	return err
}

const endMoney = `
with ended as (
  update account_act set trading = $2, unknown = null where act_id = $1 and ledger = 'SPOT' and trading is null returning act_id
)
insert into account_act_ending (act_id, by, reason, line, read_after, read_upto)
select act_id, $3, $4, $5::text::numeric, $6::text::numeric, $7::text::numeric from ended`

// EndMoney implements [transfer.ActStore].
func (s *Store) EndMoney(ctx context.Context, o transfer.MoneyOrder, e transfer.Ending) (transfer.Act, error) {
	var a transfer.Act
	var same bool
	err := store.BeginCarrying(ctx, s.db, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, orderMoney, moneyArgs(o)).Scan(append(actTargets(&a), &same)...)
		if err != nil || !same || !a.Open() {
			return err
		}
		var line, after, upto *string
		if e.Line != 0 {
			line = new(strconv.FormatUint(e.Line, 10))
		} else {
			after, upto = new(strconv.FormatUint(e.ReadAfter, 10)), new(strconv.FormatUint(e.ReadUpto, 10))
		}
		_, err = tx.Exec(ctx, endMoney, a.ID, e.Answer, o.By, store.PrintableText(o.Reason), line, after, upto)
		return err
	})
	if err = moneyError(same, err); err != nil {
		return transfer.Act{}, results.Wrap(err, "end %s %s", o.Kind, o.RequestID)
	}
	return s.Act(ctx, a.ID)
}

// KeepJournalRead implements [transfer.ActStore].
func (s *Store) KeepJournalRead(ctx context.Context, id int64, upto uint64) error {
	_, err := s.db.Exec(ctx, `update account_act set journal_read = $2 where act_id = $1 and open and journal_read < $2`, id, upto)
	return results.Wrap(err, "keep what was read of the core's journal for the act %d", id)
}

const orderStatus = actColumns + `
  from (select (m.act).* from order_status($1, $2, $3, $4, $5, $6) as m where not m.wider) as x
  join assets_tb s on s.asset_id = x.asset_id`

// OrderStatus implements [transfer.ActStore].
func (s *Store) OrderStatus(ctx context.Context, o transfer.StatusOrder) (a transfer.Act, err error) {
	err = s.carrying(ctx, actTargets(&a), orderStatus, o.UserID, o.AssetID, o.Status, o.By, store.PrintableText(o.Reason), o.OnlyNarrower)
	if errors.Is(err, pgx.ErrNoRows) {
		err = s.whyNoStatus(ctx, o)
	}
	return a, results.Wrap(err, "order status %s of user %d", o.Status, o.UserID)
}

// whyNoStatus returns why no status was ordered.
func (s *Store) whyNoStatus(ctx context.Context, o transfer.StatusOrder) error {
	if err := store.RequireAccepted(ctx, s.db, transfer.ErrForeign); err != nil || !o.OnlyNarrower {
		return cmp.Or(err, transfer.ErrForeign)
	}
	return transfer.ErrWider
}

const actByID = actRows + ` where x.act_id = $1`

// Act implements [transfer.ActStore].
func (s *Store) Act(ctx context.Context, id int64) (transfer.Act, error) {
	a, err := results.One(ctx, s.db, scanAct, actByID, id)
	return a, results.Wrap(results.Missing(err, transfer.ErrNoAct), "read act %d", id)
}

const statusActs = actRows + `
 where x.user_id = $1 and x.asset_id = $2 and x.kind = 'STATUS'
   and (x.trading is null or x.act_id = (select max(n.act_id) from account_act n where n.user_id = $1 and n.asset_id = $2 and n.kind = 'STATUS'))
 order by x.act_id`

// StatusActs implements [transfer.ActStore].
func (s *Store) StatusActs(ctx context.Context, userID int64, assetID int32) ([]transfer.Act, error) {
	all, err := results.All(ctx, s.db, scanAct, statusActs, userID, assetID)
	return all, results.Wrap(err, "list statuses of user %d", userID)
}

const actsOfAccount = actRows + ` where x.user_id = $1 and x.asset_id = $2 order by x.act_id desc limit $3`

// Acts returns the newest acts on an account, newest first.
func (s *Store) Acts(ctx context.Context, userID int64, assetID int32, limit int) ([]transfer.Act, error) {
	all, err := results.All(ctx, s.db, scanAct, actsOfAccount, userID, assetID, limit)
	return all, results.Wrap(err, "list acts on the account of user %d", userID)
}

// SetFundingStatus implements [transfer.ActStore].
func (s *Store) SetFundingStatus(ctx context.Context, id int64) error {
	_, err := s.db.Exec(ctx, `select set_funding_status($1) where is_accepted_database()`, id)
	return results.Wrap(err, "set the status of act %d in Funding", id)
}

const (
	answerFunding = `update account_act set funding = $2, unknown = null where act_id = $1 and funding is null`
	answerTrading = `update account_act set trading = $2, unknown = null where act_id = $1 and trading is null`
	postponeAct   = `update account_act set unknown = $2, next_at = clock_timestamp() + $3::interval where act_id = $1 and open`
)

// AnswerAct implements [transfer.ActStore].
func (s *Store) AnswerAct(ctx context.Context, id int64, from transfer.AccountType, answer string) error {
	statement := answerTrading
	if from == transfer.Funding {
		statement = answerFunding
	}
	_, err := s.db.Exec(ctx, statement, id, answer)
	return results.Wrap(err, "store the answer to act %d", id)
}

// maxUnknown is the most bytes that are kept of a reason.
const maxUnknown = 1000

// PostponeAct implements [transfer.ActStore].
func (s *Store) PostponeAct(ctx context.Context, id int64, unknown string, wait time.Duration) error {
	_, err := s.db.Exec(ctx, postponeAct, id, store.PrintableText(unknown[:min(len(unknown), maxUnknown)]), wait) // the cut can divide a character
	return results.Wrap(err, "postpone act %d", id)
}

// dueActs reads at most limit rows of each kind, and alternates them, so that many of one kind delay none of the other.
const dueActs = `
select act_id
  from ((select act_id, row_number() over (order by next_at, act_id) as place, false as of_status
           from account_act
          where open and kind <> 'STATUS' and next_at <= (select clock_timestamp()) and (select is_accepted_database())
          order by next_at, act_id
          limit $1)
         union all
        (select act_id, row_number() over (order by next_at, act_id), true
           from account_act
          where open and kind = 'STATUS' and next_at <= (select clock_timestamp()) and (select is_accepted_database())
          order by next_at, act_id
          limit $1)) as due
 order by place, of_status`

// DueActs returns open acts that are due, and the database's time: at most limit deposits and withdrawals, and as many
// statuses, alternately. Of each kind those come first that have been due for longest.
func (s *Store) DueActs(ctx context.Context, limit int) (ids []int64, now time.Time, err error) {
	ids, now, err = results.AllNow(ctx, s.db, pgx.RowTo[int64], dueActs, limit)
	return ids, now, results.Wrap(err, "list due acts")
}

const actOf = actRows + ` where x.kind = $1 and x.request_id = $2`

// ActOf returns the deposit or withdrawal that is stored under the order's id. The error wraps
// [transfer.ErrNoAct], or [transfer.ErrActConflict] if its other fields differ.
func (s *Store) ActOf(ctx context.Context, o transfer.MoneyOrder) (transfer.Act, error) {
	a, err := results.One(ctx, s.db, scanAct, actOf, o.Kind, o.RequestID)
	if err == nil && (a.Ledger != o.Ledger || a.UserID != o.UserID || a.AssetID != o.AssetID || a.Units != o.Units) {
		err = transfer.ErrActConflict
	}
	return a, results.Wrap(results.Missing(err, transfer.ErrNoAct), "find %s %s", o.Kind, o.RequestID)
}

const wantedStatus = `
select coalesce((select status from account_act
                  where user_id = $1 and asset_id = $2 and kind = 'STATUS'
                  order by act_id desc limit 1), 'ACTIVE')`

// WantedStatus returns the status that was ordered last of a user's accounts in an asset; ACTIVE if
// none was.
func (s *Store) WantedStatus(ctx context.Context, userID int64, assetID int32) (status string, err error) {
	err = s.db.QueryRow(ctx, wantedStatus, userID, assetID).Scan(&status)
	return status, results.Wrap(err, "read the wanted status of user %d", userID)
}
