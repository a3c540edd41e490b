package store

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Waiting is why a transaction that has not ended waits.
type Waiting struct {
	Cause        txmanager.WaitCause `json:"cause"`
	Since        time.Time           `json:"since"`
	Position     *int                `json:"position,omitempty"` // in the queue, from 1 on; nil: it has a nonce, or is held
	PositionMore bool                `json:"positionMore"`       // the position is above Position, which is MaxPosition
	BlockedBy    *Blocker            `json:"blockedBy,omitempty"`
	ExpectedAt   *time.Time          `json:"expectedAt,omitempty"` // when the wait is expected to end; nil: not known

	Window    int                 `json:"-"` // in transactions
	Now       time.Time           `json:"-"` // the database's
	Head      txmanager.WaitCause `json:"-"` // of the head of its queue; "": it is not queued
	NextAt    *time.Time          `json:"-"` // its next check
	Leased    string              `json:"-"` // the node that holds the submitter's lease; "": none
	Requested txmanager.Action    `json:"-"` // the action that was requested and not carried out yet
}

// Blocker is the transaction that another one waits for. Its fields are empty if the viewer may not see it.
type Blocker struct {
	TxID  *string             `json:"txId,omitempty"`
	Cause txmanager.WaitCause `json:"cause,omitempty"`
	Since *time.Time          `json:"since,omitempty"`
}

// MaxPosition is the highest position in a queue that is counted.
const MaxPosition = 1000

// openCause is why an open row waits: its stored cause, or the one of its state.
func openCause(row string) string {
	return `case when ` + row + `.state = 'PROTECT' then 'PROTECT'
            when ` + row + `.wait_cause is not null then ` + row + `.wait_cause
            when ` + row + `.state = 'STUCK' and ` + row + `.requested_action is null then 'OPERATOR'
            when ` + row + `.sub_state = 'INCLUDED' then 'FINALITY'
            when ` + row + `.state = 'TRACKING' then 'INCLUSION'
            when ` + row + `.state = 'SUBMITTED' then 'BROADCAST'
            when ` + row + `.reservation in ('RESERVED', 'RECYCLABLE') then 'RESERVATION'
            when exists (select from managed_tx e where e.submitter = ` + row + `.submitter and e.open and e.nonce < ` + row + `.nonce and e.state <> 'TRACKING') then 'PREDECESSOR'
            else 'NEXT' end`
}

// allocationBlock is a lateral item: why the submitter s gives no nonce to any intent now, and since
// when; null if its state permits it. With the parameter strict its window is one.
func allocationBlock(strict string) string {
	return `lateral (
       select case when p.opened_at is not null or not is_accepted_database() then 'PROTECT'
                   when s.status <> 'ACTIVE' then 'SUSPENDED'
                   when o.held >= case when ` + strict + ` then 1 else s.max_in_flight end and not ` + recyclable + ` then 'WINDOW_FULL' end as cause,
              case when p.opened_at is not null or not is_accepted_database() then p.opened_at
                   when s.status <> 'ACTIVE' then (select a.at from submitter_change a where a.submitter = s.submitter and a.action = 'SUSPEND' order by a.id desc limit 1)
                   else (select v.created_at from tx_version v where v.version = 1 and v.tx_id = (
                         select u.tx_id from managed_tx u where u.submitter = s.submitter and u.open order by u.nonce desc limit 1)) end as since
         from (select c.next_nonce - (select u.nonce from managed_tx u where u.submitter = s.submitter and u.open order by u.nonce limit 1) as held
                 from submitter_nonce_cursor c where c.submitter = s.submitter) as o
         left join protect_incident p on p.submitter = s.submitter and p.closed_at is null)`
}

// isTurn is true of a queued row q that may get the next nonce. It has not expired, no key is missing
// for its MAC, and it is not deferred until an open nonce is terminal.
var isTurn = `q.wait_cause is distinct from 'MAC_KEY' and (q.valid_until is null or q.valid_until > (select clock_timestamp())) and ` + isNotDeferred("q")

// firstInQueue selects the first queued row q of a submitter that satisfies a condition. It skips deferred rows and the
// later rows of their callers, whether or not they are due.
func firstInQueue(submitter, condition string) string {
	callers, rows := beforeBarriers(submitter, condition, "1")
	return `
       with recursive barrier as materialized (
         select ` + presentOf("d", submitter) + ` as caller, min(d.seq) as seq
           from managed_tx d
          where d.submitter = ` + submitter + ` and d.queued and not d.held and d.deferred_at >= '-infinity'
          group by 1
       ), ` + callers + rows
}

// isPastDeferral is true of a row whose cause is DEFERRED and is over: the transactions that it was
// deferred for have ended since.
func isPastDeferral(row string) string {
	return `(` + row + `.wait_cause = 'DEFERRED' and ` + isPastNonce(row) + `)`
}

var (
	explainWait          = explainWaitOf("$1")
	explainWaitByRequest = explainWaitOf(`(select r.tx_id
                  from (select tx_id, submitter from managed_tx where request_id = $1 and submitter >= $5 order by submitter limit 1) as r
                 where r.submitter = $5)`)
)

// explainWaitOf derives why a transaction waits. It counts at most [MaxPosition] rows before it. $2
// and $3 are the viewer's names and whether it is an operator. With $4, one nonce is open at a time.
func explainWaitOf(id string) string {
	return `
select d.cause,
       coalesce(case when d.cause = m.wait_cause then m.waiting_since
            when d.cause = k.cause then greatest(m.created_at, k.since)
            when d.cause = 'EARLIER_INTENT' then m.created_at
            when d.cause = 'INCLUSION' then m.first_submit_at end,
            (select h.at from tx_history h where h.tx_id = m.tx_id order by h.id desc limit 1), m.updated_at),
       case when m.queued and not m.held then (
         select count(*) from (
           select from managed_tx q where q.submitter = m.submitter and q.queued and not q.held and q.seq < m.seq
            order by q.seq desc limit ` + strconv.Itoa(MaxPosition) + `) as ahead) end,
       x.tx_id is not null, case when x.own then x.tx_id::text end, coalesce(case when x.own then x.cause end, ''), case when x.own then x.since end,
       case when $4 then 1 else s.max_in_flight end, clock_timestamp(), case when m.queued and not m.held then coalesce(k.cause, nullif(h.wait_cause, 'DEFERRED'), 'NEXT') else '' end,
       m.next_check_at, coalesce((select l.owner_node from submitter_lease l where l.submitter = m.submitter and l.expires_at > clock_timestamp()), ''),
       coalesce(m.requested_action, '')
  from managed_tx m
  join submitter s on s.submitter = m.submitter
  join ` + allocationBlock("$4::boolean") + ` as k on true
  left join lateral (` + firstInQueue("m.submitter", "m.queued and not m.held and q.seq <= m.seq and "+isTurn) + `) as h on m.queued and not m.held
 cross join lateral (
       select case when m.queued and m.held then 'HELD'
                   when not m.queued then ` + openCause("m") + `
                   when k.cause in ('PROTECT', 'SUSPENDED') then k.cause
                   when m.tx_id = h.tx_id then coalesce(k.cause, nullif(m.wait_cause, 'DEFERRED'), 'NEXT')
                   else coalesce(case when not ` + isPastDeferral("m") + ` then m.wait_cause end, 'EARLIER_INTENT') end as cause
       offset 0) as d
  left join lateral (
       (select b.tx_id, ` + Owned("b", "$2::text[]") + ` or $3 as own, coalesce(b.wait_cause, 'DEFERRED') as cause, coalesce(b.waiting_since, b.deferred_at) as since
          from managed_tx b
         where d.cause = 'EARLIER_INTENT' and b.submitter = m.submitter and b.queued and not b.held and b.deferred_at >= '-infinity'
           and b.seq < m.seq and ` + presentCaller("b") + ` = ` + presentCaller("m") + `
         order by b.deferred_at limit 1)
       union all
       (select h.tx_id, ` + Owned("h", "$2::text[]") + ` or $3, coalesce(k.cause, nullif(h.wait_cause, 'DEFERRED'), 'NEXT'),
               case when k.cause is not null then greatest(h.created_at, k.since) when h.wait_cause <> 'DEFERRED' then h.waiting_since else h.created_at end
         where d.cause = 'EARLIER_INTENT' and h.tx_id is not null)
       union all
       (select u.tx_id, ` + Owned("u", "$2::text[]") + ` or $3, ` + openCause("u") + `, coalesce(u.waiting_since, u.first_submit_at, u.updated_at)
          from managed_tx u
         where d.cause in ('WINDOW_FULL', 'PREDECESSOR') and u.submitter = m.submitter and u.open
           and (m.nonce is null or u.nonce < m.nonce) and (d.cause = 'WINDOW_FULL' or u.state <> 'TRACKING')
         order by u.nonce limit 1)
       limit 1) as x on true
 where m.tx_id = ` + id + ` and m.state not in ('CONFIRMED', 'FAILED')`
}

// scanWaiting reads a row of [explainWait].
func scanWaiting(row pgx.CollectableRow) (w Waiting, err error) {
	var blocker Blocker
	var ahead *int
	var blocked bool
	err = row.Scan(&w.Cause, &w.Since, &ahead, &blocked, &blocker.TxID, &blocker.Cause, &blocker.Since, &w.Window, &w.Now, &w.Head, &w.NextAt, &w.Leased, &w.Requested)
	if ahead != nil {
		w.Position, w.PositionMore = new(min(*ahead+1, MaxPosition)), *ahead >= MaxPosition
	}
	if blocked {
		w.BlockedBy = &blocker
	}
	return w, err
}

// TxWaiting is the transaction with this id (a UUID), and why it waits; nil if it has ended. The error is
// [ErrNotFound] if v may not see one, or wraps [ErrInDoubt] in a restored database.
func (s *Store) TxWaiting(ctx context.Context, txID string, v Viewer) (Record, *Waiting, error) {
	return s.recordWaiting(ctx, "", "", v, recordColumns+byTxID, []any{txID, v.AllNames(), v.Operator}, explainWait, []any{txID, v.AllNames(), v.Operator, s.opts.Strict})
}

// TxWaitingByRequest is [Store.TxWaiting] of the submitter's request.
func (s *Store) TxWaitingByRequest(ctx context.Context, sub txmanager.Submitter, requestID string, v Viewer) (Record, *Waiting, error) {
	return s.recordWaiting(ctx, sub, requestID, v, recordColumns+byRequest, []any{sub, requestID, v.AllNames(), v.Operator},
		explainWaitByRequest, []any{requestID, v.AllNames(), v.Operator, s.opts.Strict, sub})
}

// recordWaiting reads a record and why it waits in one round trip. The submitter and the request
// are those of [Store.notFound].
func (s *Store) recordWaiting(ctx context.Context, sub txmanager.Submitter, requestID string, v Viewer, record string, of []any, explain string, about []any) (r Record, w *Waiting, err error) {
	b := new(pgx.Batch)
	b.Queue(record, of...).Query(results.Only(&r, pgx.RowToStructByPos[Record]))
	b.Queue(explain, about...).Query(results.First(&w, scanWaiting))
	if err = s.send(ctx, b); errors.Is(err, pgx.ErrNoRows) {
		err = s.notFound(ctx, sub, requestID, v)
	}
	r.LastError, r.LastErrorDetail = callerText(r.LastError)
	return r, w, err
}

// BlockedHead is an intent that waits at the head of a queue, or that later intents pass.
type BlockedHead struct {
	Submitter txmanager.Submitter
	Cause     txmanager.WaitCause
	For       time.Duration
}

// headsOfQueues finds the first intent of each queue that may get the next nonce, and the first before it
// without a key for its MAC. It also finds those that are deferred. Its columns are submitter, cause, since
// and tx_id. strict is as in [allocationBlock].
func headsOfQueues(strict string) string {
	return `
with recursive ` + queueing(" and not held") + `, heads as materialized (
  select s.submitter, h.tx_id, h.seq, coalesce(k.cause, nullif(h.wait_cause, 'DEFERRED'), 'NEXT') as cause,
         coalesce(case when k.cause is null then case when h.wait_cause <> 'DEFERRED' then h.waiting_since end else greatest(h.created_at, coalesce(k.since, p.at)) end,
                  h.next_check_at, greatest(h.created_at, p.at)) as since
    from waiting
    join submitter s using (submitter)
    join ` + allocationBlock(strict) + ` as k on true
    left join lateral (` + firstInQueue("waiting.submitter", isTurn) + `) as h on true
   cross join lateral ( -- when the queue last moved: the newest nonce was bound, or the newest below all open ones ended
         select greatest((select u.first_submit_at from managed_tx u where u.submitter = s.submitter and u.nonce = c.next_nonce - 1),
                         (select u.updated_at from managed_tx u where u.submitter = s.submitter and u.nonce = coalesce(c.in_flight_nonce, c.next_nonce) - 1)) as at
           from submitter_nonce_cursor c where c.submitter = s.submitter offset 0) as p
), blocked as (
  select submitter, cause, since, tx_id from heads where seq is not null
  union all
  select f.submitter, x.wait_cause, x.waiting_since, x.tx_id
    from heads f
   cross join lateral (` + firstInQueue("f.submitter", `q.wait_cause = 'MAC_KEY' and q.seq < coalesce(f.seq, 9223372036854775807)`) + `) as x
  union all
  select d.submitter, d.wait_cause, d.waiting_since, d.tx_id
    from managed_tx d
   where d.queued and not d.held and d.deferred_at >= '-infinity' and d.wait_cause is not null
  union all
  select d.submitter, d.wait_cause, d.waiting_since, d.tx_id
    from managed_tx d
   where d.queued and not d.held and d.deferred_until_nonce is not null and d.wait_cause = 'DEFERRED'
     and exists (select from managed_tx u where u.submitter = d.submitter and u.open and u.nonce <= d.deferred_until_nonce)
)
select submitter, cause, since, tx_id from blocked`
}

// blockedHeads reads [headsOfQueues] with the time that each has waited.
var blockedHeads = `
select submitter, cause, greatest(clock_timestamp() - since, interval '0') from (` + headsOfQueues("$1::boolean") + `) as heads`

// BlockedHeads lists the intents that wait at the heads of all queues, and those that later intents pass.
func (s *Store) BlockedHeads(ctx context.Context) ([]BlockedHead, error) {
	all, err := results.All(ctx, s.db, pgx.RowToStructByPos[BlockedHead], blockedHeads, s.opts.Strict)
	return all, results.Wrap(err, "read the heads of the queues")
}

// loadWaiting reads the first intents of a queue, with what keeps each from being posted now.
var loadWaiting = `
select ` + txExtras{
	payload: payloadOf, raw: "null::bytea", versions: "'{}'::text[]", quiet: "false", barred: barred,
	caller: presentOf("m", "u.submitter"), value: callersValue,
}.columns() + `
  from ` + members + `
  join managed_tx m on m.submitter = u.submitter
 where ` + waits + `
 order by m.seq
 limit $2`

// Waiting loads a submitter's state with the first limit intents of its queue, to evaluate
// them against its present policy and callers. It takes no lease and writes nothing.
func (s *Store) Waiting(ctx context.Context, sub txmanager.Submitter, limit int) (txmanager.SubmitterState, error) {
	one := []pendingLoad{{submitter: sub}}
	b := new(pgx.Batch)
	s.queueLoads(b, one)
	b.Queue(loadWaiting, []txmanager.Submitter{sub}, limit, s.opts.AnyCaller).Query(func(rows pgx.Rows) error {
		one[0].state.Queue = nil
		return scanTxs(rows, one, nil, inQueue)
	})
	err := s.db.SendBatch(ctx, b).Close()
	err = cmp.Or(err, one[0].err) // the batch sets it
	return one[0].state, results.Wrap(err, "read the queue of %s", sub)
}
