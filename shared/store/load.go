package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

var feesUsed = `(` + strings.ReplaceAll(feesInDay, "p.", "y.") + `)::text`

// members are the submitters of a load, each with its place from 1 on. Each statement of a load
// reads them one after the other. So a limit of its rows ends the load of the last ones.
const members = `unnest($1::text[]) with ordinality as u (submitter, place)`

var loadSubmitter = `
select x.*
  from ` + members + `
 cross join lateral (
select u.place, clock_timestamp(), s.max_in_flight, s.status <> 'ACTIVE', c.next_nonce,
       coalesce(c.final_block_number, 0), c.final_blocks, c.suspected_violation,
       coalesce(p.incident, 0), case when p.evidence ? 'why' then p.evidence end,
       (select min(m.deferred_until_nonce) from managed_tx m
         where m.submitter = s.submitter and ` + waits + ` and m.deferred_until_nonce is not null and not ` + isNotDeferred("m") + `),
       c.blocked_callers, is_accepted_database(), (select epoch from database_identity), s.signer,
       coalesce((select l.name_epoch from submitter_lease l where l.submitter = s.submitter), ''),
       coalesce(y.max_gas, 0), y.max_tip_wei::text, y.max_fee_wei::text, y.max_day_fees_wei::text, ` + feesUsed + `,
       y.max_value_wei::text, y.targets, y.tokens, not '` + HooksCaller + `' = any(s.callers),
       (select min(m.valid_until) from managed_tx m where m.submitter = s.submitter and ` + waits + ` and m.valid_until > (select clock_timestamp())),
       (select min(m.next_check_at) from managed_tx m where m.submitter = s.submitter and ` + waits + ` and m.deferred_at >= '-infinity' and m.next_check_at > (select clock_timestamp()))
  from submitter s
  join submitter_nonce_cursor c using (submitter)
  left join protect_incident p on p.submitter = s.submitter and p.closed_at is null
  left join submitter_policy y on y.submitter = s.submitter
 where s.submitter = u.submitter
offset 0) as x`

// recordedOf is the [txmanager.Recorded] of m.
const recordedOf = `case when m.recorded_nonce is not null then jsonb_build_object('nonce', m.recorded_nonce, 'receipt', (
         select jsonb_build_object('txHash', f.tx_hash, 'blockNumber', f.block_number, 'blockHash', f.block_hash, 'succeeded', f.succeeded, 'document', f.receipt)
           from foreign_transaction f
          where f.submitter = m.submitter and f.nonce = m.recorded_nonce)) end`

// txRow is a row of managed_tx. A column of its statements fills the member of its name.
type txRow struct {
	txmanager.Tx
	Place int // of the submitter in the load

	ReservationState, LockOwner *string
	LockUntil                   *time.Time
	MACKey                      string
	MACSum                      []byte
	VersionTexts                []string // kind and hash
	CallersValue                *string
	Quiet, Ahead                bool
}

// txColumns are the columns that every statement reads of an open or queued m.
const txColumns = `u.place, m.tx_id as id, m.request_id, m.seq, m.state, coalesce(m.sub_state, '') as sub, m.nonce, m.deferred_until_nonce,
       m.last_gas_params as gas, m.submit_attempts, m.first_submit_at, m.last_submit_at, m.next_resubmit_at, m.next_bump_at,
       m.last_receipt_check_at as last_check_at, m.next_check_at, coalesce(m.last_error, '') as last_error, coalesce(m.wait_cause, '') as cause,
       m.receipt, m.confirmations, m.last_mempool_diag as diagnosis,
       coalesce(m.requested_action, '') as requested_action, coalesce(m.handler, '') as handler, m.trace,
       m.reservation as reservation_state, m.lock_owner, m.lock_until, ` + recordedOf + ` as recorded,
       m.fills as fills_lost_nonce, m.caller, m.fingerprint, coalesce(m.mac_key, '') as mac_key, m.mac as mac_sum,
       m.mac is null and coalesce(m.seq <= (select last_intent_without_mac()), true) as needs_no_mac,
       m.updated_at > clock_timestamp() as ahead, m.created_at, m.valid_until, m.blocked_since as held_back_since, m.deferred_at`

// txExtras are the expressions of what two statements read of m in two ways.
type txExtras struct{ payload, raw, versions, quiet, barred, caller, value string }

// columns is [txColumns] and the extras.
func (x txExtras) columns() string {
	return txColumns + `,
       ` + x.payload + ` as payload, ` + x.raw + ` as raw, ` + x.versions + ` as version_texts, ` + x.quiet + ` as quiet,
       ` + x.barred + ` as barred_reason, ` + x.caller + ` as present_caller, ` + x.value + ` as callers_value`
}

const unsettledStates = `('IN_FLIGHT', 'SUBMITTED', 'TRACKING', 'STUCK', 'PROTECT')`

// quiet is true of an open m whose payload and bytes this iteration does not need, whatever
// the chain observation shows. A node has it, and within $2 it will neither be sent again nor
// become STUCK. $2 is the longest time that the lease can last until the evaluation. No action
// is requested, and no gas bump is due within $2 ($4 is their interval). It is not the lowest,
// whose nonce a foreign transaction may have consumed. No PROTECT incident is open.
const quiet = `coalesce(m.state = 'TRACKING' and m.receipt is null and m.requested_action is null and m.updated_at <= clock_timestamp()
       and m.next_resubmit_at > clock_timestamp() + $2::interval and m.first_submit_at > clock_timestamp() + $2::interval - $3::interval
       and ($4::interval is null or coalesce(m.next_bump_at, m.first_submit_at + $4::interval) > clock_timestamp() + $2::interval)
       and m.nonce > (select l.nonce from managed_tx l where l.submitter = u.submitter and l.open order by l.nonce limit 1)
       and not exists (select from protect_incident p where p.submitter = u.submitter and p.closed_at is null), false)`

const payloadOf = `(select d.body from tx_document d where d.tx_id = m.tx_id and d.name = 'payload')`

// loadUnsettled reads documents row by row, only where they are needed. A join would read all
// of them.
var loadUnsettled = `
select x.*
  from ` + members + `
 cross join lateral (
select ` + txExtras{
	payload: `case when not q.quiet then ` + payloadOf + ` end`,
	raw: `case when not q.quiet and m.tx_hash is not null then (
         select d.bytes from tx_document d where d.tx_id = m.tx_id and d.name = 'version:' || (
           select max(v.version) from tx_version v where v.tx_id = m.tx_id)) end`,
	versions: `array(select v.kind || ' ' || v.tx_hash from tx_version v where v.tx_id = m.tx_id order by v.version)`,
	quiet:    "q.quiet", barred: "''", caller: "''", value: "null::text",
}.columns() + `
  from managed_tx m
 cross join lateral (select ` + quiet + ` as quiet offset 0) as q
 where m.submitter = u.submitter and m.open
 order by m.nonce) as x
 order by u.place
 limit $5`

// isNotDeferred is true of a queued row if every transaction that it was deferred for is terminal.
func isNotDeferred(row string) string {
	return `(` + row + `.deferred_until_nonce is null or ` + isPastNonce(row) + `)`
}

// isPastNonce is [isNotDeferred] of a row that was deferred.
func isPastNonce(row string) string {
	return `not exists (
       select from managed_tx u where u.submitter = ` + row + `.submitter and u.open and u.nonce <= ` + row + `.deferred_until_nonce)`
}

// barred is why the submitter's present callers would not let a queued m be posted; empty if they
// would. The checks are those of [mayPost]. With $3, "*" matches every token.
var barred = `(
       select case when not (` + presentCaller("m") + ` = any(s.callers)
                          or $3 and '*' = any(s.callers) and m.caller not in ('', '` + PayoutCaller + `', '` + HooksCaller + `') and not starts_with(m.caller, '` + HandlerCaller + `'))
                   then 'the submitter''s callers do not name ' || ` + presentCaller("m") + ` || ' any more'
                   when m.handler is not null and not '` + HandlerCaller + `' || m.handler = any(s.callers)
                   then 'the submitter''s callers do not name ` + HandlerCaller + `' || m.handler || ' any more'
                   else '' end
         from submitter s where s.submitter = u.submitter)`

// callersValue is the value that the submitter's policy allows the caller of a queued m in one
// transaction. It reads nothing if the policy has no limits of callers.
var callersValue = `case when (select y.per_caller is not null from submitter_policy y where y.submitter = u.submitter) then (
       select k.max_value_wei::text
         from submitter_policy p
         join submitter s on s.submitter = p.submitter
        cross join ` + limitsOf("m.caller") + `
        where p.submitter = u.submitter) end`

// loadQueue reads one row more than may be used, to find out whether there are more, and
// additional rows that are deferred and due. A row whose MAC key is not among $4 gets a next
// check and is skipped until then, so that an unknown key blocks no other row. With $4 null
// every key passes. The rows that have [expired] follow the queue.
var loadQueue = `
select x.*
  from ` + members + `
 cross join lateral (
with recursive ` + openQueue("u.submitter", "$4", `(select 1 + case when ($2::boolean[])[u.place] then s.max_in_flight else 1 end + least((select count(*) from deferred where due), `+strconv.Itoa(maxDeferred)+`) from submitter s where s.submitter = u.submitter)`) + `
select ` + txExtras{
	payload: `case when not m.expired then ` + payloadOf + ` end`,
	raw:     "null::bytea", versions: "'{}'::text[]", quiet: "m.expired", barred: barred,
	caller: presentOf("m", "u.submitter"), value: callersValue,
}.columns() + `
  from (select q.*, false as expired from open as q
         union all
        (select x.*, true from managed_tx x where ` + expired("x", "(select now from clock)") + ` order by x.valid_until limit ` + strconv.Itoa(maxExpired) + `)) as m
 order by m.expired, m.seq) as x
 order by u.place
 limit $5`

// maxExpired is the limit of expired intents that one iteration ends, and maxDeferred that
// of deferred intents that it checks.
const (
	maxExpired  = 500
	maxDeferred = 100
)

// expired is true of a queued row of the submitter whose validUntil has passed. Held rows
// and rows in PROTECT do not expire: they may have run.
func expired(row, now string) string {
	return row + `.submitter = u.submitter and ` + row + `.queued and not ` + row + `.held and ` + row + `.valid_until <= ` + now + `
           and not exists (select from protect_incident p where p.submitter = u.submitter and p.closed_at is null)`
}

// due is true of a deferred row whose next check has come.
const due = `(m.next_check_at is null or m.next_check_at <= (select now from clock) or m.updated_at > (select now from clock))`

// openQueue selects, as "open", the first rows of a submitter's queue that may get a nonce
// now. It skips deferred rows that are not due, and later rows of their callers.
func openQueue(submitter, key, limit string) string {
	mayStart := `(q.valid_until is null or q.valid_until > (select now from clock)) and ` + isNotDeferred("q") + ` and ` + hasKey(key)
	callers, rows := beforeBarriers(submitter, mayStart, limit)
	return `clock as materialized (
  select clock_timestamp() as now
), deferred as materialized (
  select ` + presentOf("m", submitter) + ` as caller, m.seq, ` + due + ` as due
    from managed_tx m
   where m.submitter = ` + submitter + ` and ` + waits + ` and m.deferred_at >= '-infinity'
   order by m.deferred_at
), barrier as materialized (
  select caller, min(seq) as seq from deferred where not due group by caller
), ` + callers + `, open as (` + rows + `)`
}

// beforeBarriers selects the first queued rows q of a submitter that satisfy a condition. Each is before the seq that the
// CTE "barrier" has for its present caller, if it has one. Without a barrier it reads the queue in order. Otherwise it reads
// the rows of each of the callers, a further CTE, separately, so that rows after a barrier are not read at all.
func beforeBarriers(submitter, condition, limit string) (callers, rows string) {
	waiting := `q.submitter = ` + submitter + ` and q.queued and not q.held`
	callers = `callers as (
  (select q.caller from managed_tx q where exists (select from barrier) and ` + waiting + ` order by q.caller limit 1)
  union all
  select (select q.caller from managed_tx q where ` + waiting + ` and q.caller > c.caller order by q.caller limit 1)
    from callers c
   where c.caller is not null
)`
	rows = `
  (select q.* from managed_tx q where not exists (select from barrier) and ` + waiting + ` and ` + condition + ` order by q.seq limit ` + limit + `)
  union all
  (select r.*
     from callers c
     left join barrier b on b.caller = ` + presentOf("c", submitter) + `
    cross join lateral (
          select q.* from managed_tx q
           where ` + waiting + ` and q.caller = c.caller and q.seq < coalesce(b.seq, 9223372036854775807) and ` + condition + `
           order by q.seq limit ` + limit + `) as r
    where c.caller is not null
    order by r.seq
    limit ` + limit + `)`
	return callers, rows
}

// pendingLoad is the load of one submitter's state. The statements that load it load others' too.
type pendingLoad struct {
	submitter txmanager.Submitter
	wide      bool // as much of the queue as the window is wide; otherwise its head
	state     txmanager.SubmitterState
	err       error // of this submitter alone
}

// queueLoads adds the load of the submitters' states to a batch. They are separate statements
// after the one that locks the leases, because a snapshot is taken when its statement starts.
// The lock statement may have waited.
func (s *Store) queueLoads(b *pgx.Batch, all []pendingLoad) {
	submitters, wide := make([]txmanager.Submitter, len(all)), make([]bool, len(all))
	for i := range all {
		l := &all[i]
		submitters[i], wide[i], l.err = l.submitter, l.wide, fmt.Errorf("%s: %w", l.submitter, ErrUnknownSubmitter)
	}
	b.Queue(loadSubmitter, submitters).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := s.scanSubmitter(rows, all); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	if s.bumpAfter != nil {
		var place int
		var wei *string
		b.Queue(bumpSpent, submitters).Query(results.Each([]any{&place, &wei}, func() {
			all[place-1].state.BumpBudgetUsedWei = bigFromText(wei)
		}))
	}
	var limit *int // of the rows of each statement
	if len(all) > 1 {
		limit = new(maxSharedRows)
	}
	// A lease may be acquired, renewed for one chain query, and renewed for another before the
	// evaluation.
	round := 3 * s.rules.Duration
	b.Queue(loadUnsettled, submitters, round, s.opts.StuckAfter, s.bumpAfter, limit).Query(func(rows pgx.Rows) error {
		return scanTxs(rows, all, limit, func(w *txmanager.SubmitterState) *[]txmanager.Tx { return &w.Open })
	})
	b.Queue(loadQueue, submitters, wide, s.opts.AnyCaller, s.opts.MACKeys, limit).Query(func(rows pgx.Rows) error {
		err := scanTxs(rows, all, limit, inQueue)
		for i := range all {
			splitQueue(&all[i].state, all[i].wide)
		}
		return err
	})
}

// maxSharedRows limits the open transactions that a load of several submitters returns, and
// those of their queues. The submitters at its end, whose rows may be incomplete, load alone.
const maxSharedRows = 4000

var errLoadIncomplete = errors.New("the load of several submitters reached its limit of rows")

func (s *Store) scanSubmitter(row pgx.Row, all []pendingLoad) error {
	var w txmanager.SubmitterState
	var ours bool
	var place int
	var epoch, names string
	var tip, fee, day, used, value *string
	var targets []string
	var tokens map[string]TokenLimits
	var gas int64
	err := row.Scan(&place, &w.Now, &w.Window, &w.Suspended, &w.NextNonce, &w.FinalHead, &w.FinalBlocks, &w.SuspectedViolation,
		&w.Incident, &w.Evidence, &w.LowestDeferredUntil, &w.HeldBackSince, &ours, &epoch, &w.Signer, &names, &gas, &tip, &fee, &day, &used, &value, &targets, &tokens, &w.HooksForbidden, &w.NextExpiry, &w.DeferredUntil)
	if err != nil {
		return err
	}
	w.Bounds = txmanager.Bounds{ValueWei: bigFromText(value), Targets: targets, Gas: uint64(gas), TipWei: bigFromText(tip), FeeWei: bigFromText(fee), FeesPerDayWei: bigFromText(day), FeesUsedWei: bigFromText(used), Tokens: maxPerTx(tokens)}
	w.Protected, w.ForeignDatabase = w.Incident != 0 || !ours, !ours
	l := &all[place-1]
	s.epoch.note(thisDatabase{}, epoch)
	s.names.note(l.submitter, names)
	l.state, l.err = w, nil
	return nil
}

func inQueue(w *txmanager.SubmitterState) *[]txmanager.Tx { return &w.Queue }

// txMembers are the members of [txRow] that [txExtras.columns] fill. They are the same in each statement, and are found
// once: to find them for each row costs more than to read it.
var txMembers struct {
	once  sync.Once
	paths [][]int
}

// txTargets returns where a scan of the columns keeps the values of r.
func txTargets(columns []pgconn.FieldDescription, r *txRow) []any {
	txMembers.once.Do(func() {
		for _, c := range columns {
			member, _ := reflect.TypeFor[txRow]().FieldByNameFunc(func(name string) bool {
				return strings.EqualFold(name, strings.ReplaceAll(c.Name, "_", ""))
			})
			txMembers.paths = append(txMembers.paths, member.Index) // of no member: the scan fails
		}
	})
	into := make([]any, len(columns))
	for i, path := range txMembers.paths {
		into[i] = reflect.ValueOf(r).Elem().FieldByIndex(path).Addr().Interface()
	}
	return into
}

// scanTxs adds each transaction to the state of its submitter. If the rows have reached their
// limit, those of the last submitter and of all after it may be incomplete.
func scanTxs(rows pgx.Rows, all []pendingLoad, limit *int, in func(*txmanager.SubmitterState) *[]txmanager.Tx) error {
	var r txRow
	var into []any
	n, last := 0, 1
	for ; rows.Next(); n++ {
		if n == 0 {
			into = txTargets(rows.FieldDescriptions(), &r)
		}
		r = txRow{}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		last = r.Place
		l := &all[last-1]
		t, err := r.tx(l.submitter, l.state.Now)
		l.err = cmp.Or(l.err, err)
		list := in(&l.state)
		*list = append(*list, t)
	}
	if limit != nil && n == *limit {
		for i := last - 1; i < len(all); i++ {
			all[i].err = cmp.Or(all[i].err, errLoadIncomplete)
		}
	}
	return rows.Err()
}

// splitQueue divides the rows of a queue into those to use and those that have expired, and notes
// whether there are more.
func splitQueue(w *txmanager.SubmitterState, wide bool) {
	limit := 1
	if wide {
		limit = int(w.Window)
	}
	queue := w.Queue
	if i := slices.IndexFunc(queue, func(t txmanager.Tx) bool { return t.Payload == nil }); i >= 0 { // of what is expired none is loaded
		w.Expired, queue = queue[i:], queue[:i:i]
		w.ExpiredMore = len(w.Expired) == maxExpired
	}
	deferred := 0
	for _, t := range queue {
		if t.DeferredAt != nil {
			deferred++
		}
	}
	limit += deferred
	w.QueueMore = len(queue) > limit || deferred >= maxDeferred
	w.Queue = queue[:min(len(queue), limit)]
}

// load loads one submitter's state.
func (s *Store) load(ctx context.Context, sub txmanager.Submitter, wide bool) (txmanager.SubmitterState, error) {
	one := []pendingLoad{{submitter: sub, wide: wide}}
	b := new(pgx.Batch)
	s.queueLoads(b, one)
	err := s.send(ctx, b)
	err = cmp.Or(err, one[0].err) // the batch sets it
	return one[0].state.WithLoadTime(time.Now()), err
}

// maxPerTx is the largest amount of each token that one transaction may move.
func maxPerTx(tokens map[string]TokenLimits) map[string]*big.Int {
	if tokens == nil {
		return nil
	}
	most := make(map[string]*big.Int, len(tokens))
	for token, limits := range tokens {
		most[token] = bigFromText(limits.MaxAmount)
	}
	return most
}

// bigFromText is a numeric column of whole numbers; nil: null.
func bigFromText(text *string) *big.Int {
	if text == nil {
		return nil
	}
	n, _ := new(big.Int).SetString(*text, 10)
	return n
}

// bumpSpent is what gas bumps have added to the most that a submitter may pay. The clock is
// read once, so that the index skips older rows.
const bumpSpent = `
select u.place, (
       select coalesce(sum(extra_wei), 0)::text
         from tx_version
        where submitter = u.submitter and extra_wei is not null and created_at > (select clock_timestamp() - interval '24 hours'))
  from ` + members

// tx is the transaction of a row, loaded at now.
func (r *txRow) tx(sub txmanager.Submitter, now time.Time) (txmanager.Tx, error) {
	t := r.Tx
	t.Submitter, t.MaxValueWei, t.MAC = sub, bigFromText(r.CallersValue), txmanager.MAC{Key: r.MACKey, Sum: r.MACSum}
	if r.Ahead {
		reachable(&t, now)
	}
	if r.ReservationState != nil {
		t.Reservation = &txmanager.Reservation{State: txmanager.ReservationState(*r.ReservationState), Owner: *r.LockOwner, Until: *r.LockUntil}
	}
	if !r.Quiet && (t.Payload == nil || (t.Raw == nil && len(r.VersionTexts) > 0)) {
		return t, errArchived(t.ID)
	}
	for _, text := range r.VersionTexts {
		kind, hash, _ := strings.Cut(text, " ")
		h, err := txmanager.ParseHash(hash)
		if err != nil {
			return t, err
		}
		if t.Versions = append(t.Versions, h); txmanager.VersionKind(kind) == txmanager.VersionPlaceholder {
			t.Placeholders = append(t.Placeholders, h)
		}
	}
	return t, nil
}

// reachable moves to now the times of a row that was changed before the database's clock was
// set back. Its next check and its next broadcast are then due. Equal times stay equal,
// because equality marks a claimed broadcast whose outcome was not recorded.
func reachable(t *txmanager.Tx, now time.Time) {
	for _, at := range []**time.Time{&t.FirstSubmitAt, &t.LastSubmitAt, &t.NextResubmitAt, &t.LastCheckAt, &t.NextCheckAt} {
		if *at != nil && (*at).After(now) {
			*at = &now
		}
	}
}

// errArchived reports an action that needs a document which an operator has archived.
func errArchived(txID string) error {
	return fmt.Errorf("transaction %s: its documents are not there: attach the quarter's partition of tx_document again", txID)
}
