package transfers

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
)

// The compare-and-sets of one transaction are one statement: its cost is mostly that of its start. It locks the
// rows in the order of their req_ids.
const (
	// startRows checks the age, by the database's clock, and the payer in the statement that writes. So a
	// worker that was frozen before it starts nothing that is too old. A payout in INIT does not begin
	// while its payer cannot pay, its asset is suspended, or it is halted, because a payment cannot be
	// taken back. The limit keeps the planner from reading all rows in their order.
	startRows = `
  select i.req_id, f.state as was, case when late then -10 else 10 end as becomes, case when late then 'EXPIRED' end as why
    from unnest(@starts::text[], @timeouts::interval[]) as i (req_id, init_timeout),
         lateral (select x.* from transfers_tb x where x.req_id = i.req_id limit 1) as f,
         lateral (select f.payout_submitter as submitter) as p,
         lateral (select f.created_at < clock_timestamp() - i.init_timeout and ` + untouched + ` as late) as c
   where f.state = 0 and (late or f.payout_submitter is null or ` + mayPay + ` and ` + mayLeave + `)`

	moveRows = `
  select m.req_id, m.was, m.becomes, nullif(m.why, '') as why
    from unnest(@moves::text[], @was::smallint[], @becomes::smallint[], @whys::text[]) as m (req_id, was, becomes, why)`

	starts        = withRows + startRows + updateRows + returningTransfer
	moves         = withRows + moveRows + updateRows + returningTransfer
	startsOrMoves = withRows + startRows + `
   union all` + moveRows + updateRows + returningTransfer

	// furtherMoves only moves rows that this transaction has written: a transfer that another transaction brought
	// into the middle of its path stays there.
	furtherMoves = withRows + moveRows + updateRows + ` and t.xmin = pg_current_xact_id()::xid` + returningTransfer

	// The rows are evaluated once, before the update: the planner would otherwise evaluate their conditions for
	// each of many rows.
	withRows = `
with evaluated as materialized (`

	updateRows = `
   order by req_id
)
update transfers_tb t
   set state = e.becomes, error_message = coalesce(e.why, t.error_message),
       failures = 0, last_unknown = null, next_attempt_at = null,
       state_at = clock_timestamp(), updated_at = clock_timestamp()
  from evaluated e
 where t.req_id = e.req_id and t.state = e.was and (select is_accepted_database())`
)

// hop is a change of the state by one update.
type hop struct{ was, becomes transfer.State }

// hopsOf are the updates along a legal path. SOURCE_PENDING becomes TARGET_PENDING in one of them: the database
// records that it went through SOURCE_DONE.
func hopsOf(path []transfer.State) (all []hop) {
	for i := 1; i < len(path); i++ {
		if path[i] == transfer.SourceDone && i+1 < len(path) {
			i++
			all = append(all, hop{path[i-2], path[i]})
			continue
		}
		all = append(all, hop{path[i-1], path[i]})
	}
	return all
}

// queueMoves makes the first hops and the starts, and then the further hops of longer paths.
func (t *transaction) queueMoves(b *pgx.Batch) {
	for n, more := 0, true; more; n++ {
		args := store.NamedArgs{}
		more = t.addHops(args, n)
		started := n == 0 && t.addStarts(args)
		statement := furtherMoves
		switch {
		case started && more:
			statement = startsOrMoves
		case started:
			statement = starts
		case n == 0:
			statement = moves
		}
		if started || more {
			b.Queue(statement, args).Query(t.scanWritten)
		}
	}
}

// addStarts adds the parameters of [startRows], if there are starts.
func (t *transaction) addStarts(args store.NamedArgs) bool {
	var reqs []string
	var timeouts []time.Duration
	for _, w := range t.all {
		if w.start != nil {
			reqs, timeouts = append(reqs, w.start.reqID), append(timeouts, w.start.initTimeout)
		}
	}
	if len(reqs) > 0 {
		args["starts"], args["timeouts"] = reqs, timeouts
	}
	return len(reqs) > 0
}

// addHops adds the parameters of [moveRows] with the n-th hop of each path, if there are any.
func (t *transaction) addHops(args store.NamedArgs, n int) bool {
	var reqs, whys []string
	var was, becomes []int16
	for _, w := range t.all {
		if w.move == nil {
			continue
		}
		if hops := hopsOf(w.move.Path); n < len(hops) {
			reqs, whys = append(reqs, w.move.ReqID), append(whys, string(w.move.Reason))
			was, becomes = append(was, int16(hops[n].was)), append(becomes, int16(hops[n].becomes))
		}
	}
	if len(reqs) > 0 {
		args["moves"], args["was"], args["becomes"], args["whys"] = reqs, was, becomes, whys
	}
	return len(reqs) > 0
}
