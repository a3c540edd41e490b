package store

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// AttentionKind is a kind of thing that needs a person.
type AttentionKind string

// The kinds, the most urgent first. The rank of a kind is its place, and a wait below its limit comes last.
const (
	AttentionDatabase AttentionKind = "DATABASE" // the database is not the one that was written last
	AttentionMove     AttentionKind = "MOVE"     // a planned move of the database is open
	AttentionProtect  AttentionKind = "PROTECT"  // a submitter is in PROTECT
	AttentionHalt     AttentionKind = "HALT"     // transfers are halted
	AttentionFinding  AttentionKind = "FINDING"  // a check of conservation found a violation that stands
	AttentionStuck    AttentionKind = "STUCK"    // a transaction waits for a decision
	AttentionPayout   AttentionKind = "PAYOUT"   // a payout goes on only by an operator's statement
	AttentionTransfer AttentionKind = "TRANSFER" // withdrawn, and not deposited for too long
	AttentionRefund   AttentionKind = "REFUND"   // a refund fails again and again
	AttentionAccount  AttentionKind = "ACCOUNT"  // a ledger has not answered an act on an account
	AttentionBlocked  AttentionKind = "BLOCKED"  // the head of a queue, or a transaction with a nonce, waits
	AttentionForeign  AttentionKind = "FOREIGN"  // foreign transactions of a submitter have no decision
	AttentionHeld     AttentionKind = "HELD"     // intents are held until a decision
	AttentionEndpoint AttentionKind = "ENDPOINT" // an endpoint does not accept its events
	AttentionPaused   AttentionKind = "PAUSED"   // an operator has paused the deliveries to an endpoint
	AttentionProposal AttentionKind = "PROPOSAL" // an act waits for a second operator
)

// AttentionKinds lists the kinds, the most urgent first.
func AttentionKinds() []AttentionKind {
	return []AttentionKind{AttentionDatabase, AttentionMove, AttentionProtect, AttentionHalt, AttentionFinding, AttentionStuck, AttentionPayout,
		AttentionTransfer, AttentionRefund, AttentionAccount, AttentionBlocked, AttentionForeign, AttentionHeld, AttentionEndpoint, AttentionPaused, AttentionProposal}
}

// AttentionItem is one thing that needs a person, or will if it lasts.
type AttentionItem struct {
	AttentionPlace
	Kind      AttentionKind
	Overdue   bool   // false: a wait below its limit
	Submitter string // "", as the members below: the item has none
	TxID      string
	ReqID     string
	Number    int64  // of the incident, halt, finding or act; of held intents and foreign transactions, how many, up to 1,000; 0: none
	Name      string // cause of a wait, scope of a halt, kind of a finding or a payout's doubt, account, endpoint, or proposal
	Detail    string // what is on record about it
}

// AttentionPlace is the place of an item in the list.
type AttentionPlace struct {
	Rank  int
	Since time.Time
	Key   string // names the item
}

// AttentionCount is a number of items.
type AttentionCount struct {
	Kind    AttentionKind `json:"kind"`
	Overdue bool          `json:"overdue"` // false: waits below their limits
	Count   int           `json:"count"`
}

// AttentionLimits are the limits beyond which something needs a person.
type AttentionLimits struct {
	Waits     []WaitLimit
	Transfers transfer.Rules
	Endpoints []string // to which events are delivered
}

// WaitLimit is the time after which a wait needs a person.
type WaitLimit struct {
	Chain string // CAIP-2, such as "eip155:1"; "": of each chain without a limit of its own
	Cause txmanager.WaitCause
	Limit time.Duration
}

// eventsLate is how long an event waits for its endpoint before that needs a person.
const eventsLate = "10 minutes"

// actsLate is how long a ledger may take to answer an act on an account.
const actsLate = "10 minutes"

// payoutSettles is how long the coordinator may take to act on the end of a payout's transaction.
const payoutSettles = "2 minutes"

// attentionSources are the items, by one statement a source: since when, key, kind, overdue, submitter,
// tx_id, req_id, number, name and detail. Each reads rows that are open, by an index.
var attentionSources = []string{`
select a.accepted_at, 'database', 'DATABASE', true, null, null::uuid, null, null::bigint, null, a.accepted_by
  from database_identity a where not is_accepted_database()`, `
select m.at, 'move', 'MOVE', true, null, null, null, null, null, m.reason
  from database_move m where m.ended_at is null`, `
select p.opened_at, p.submitter, 'PROTECT', true, p.submitter, null, null, p.incident, p.evidence ->> 'why', p.evidence ->> 'what'
  from protect_incident p where p.closed_at is null`, `
select h.since, h.halt_id::text, 'HALT', true, null, null, null, h.halt_id, h.scope, h.evidence ->> 'what'
  from transfer_halt h where h.resumed_at is null`, `
select f.at, f.finding_id::text, 'FINDING', true, null, null, f.req_id, f.finding_id, f.kind,
       'expected ' || coalesce(s.expected, f.expected) || ', got ' || coalesce(s.got, f.got)
  from conservation_standing s join conservation_finding f using (finding_id)`, `
select coalesce(m.waiting_since, m.updated_at), m.tx_id::text, 'STUCK', true, m.submitter, m.tx_id, null, null, null, m.last_error
  from managed_tx m where m.open and m.state = 'STUCK'`, `
select coalesce(p.since, t.state_at), t.req_id, case when p.doubt is not null then 'PAYOUT' when t.state = 30 then 'TRANSFER' else 'REFUND' end, true,
       t.payout_submitter, p.tx_id, t.req_id, null, p.doubt, t.last_unknown
  from transfers_tb t
  left join lateral (
       select m.tx_id, case when m.state in ('CONFIRMED', 'FAILED') then m.updated_at end as since,
              case when m.state in ('CONFIRMED', 'FAILED') and m.updated_at < clock_timestamp() - interval '` + payoutSettles + `' then 'UNPROVED'
                   when coalesce(m.state = 'QUEUED', true)
                        and exists (select from identity_change c where c.at >= t.created_at or c.transfers_upto >= t.transfer_id)
                        and not exists (select from payout_statement n where n.req_id = t.req_id and n.acted_at is not null) then 'IN_DOUBT'
                   when m.tx_id is null and t.last_unknown is not null and t.state_at < clock_timestamp() - interval '` + payoutSettles + `' then 'NOT_POSTED' end as doubt
         from (select) as one
         left join managed_tx m on m.request_id = t.req_id and m.submitter = t.payout_submitter
       offset 0) as p on t.transfer_type = 3 and t.state = 30
 where t.open
   and case when p.doubt is not null then true
            when t.state = 30 then clock_timestamp() - t.state_at > case when t.transfer_type = 3 then @payoutLimit::interval else @pendingLimit::interval end
            else t.state = -20 and t.failures >= @refundLimit::integer end
   and coalesce((select k.until <= clock_timestamp() or k.state <> t.state or k.at < t.state_at or exists (select from identity_change c where c.at >= k.at)
         from transfer_acknowledgement k where k.transfer_id = t.transfer_id order by k.id desc limit 1), true)`, `
select a.at, a.act_id::text, 'ACCOUNT', a.kind <> 'STATUS', null, null, null, a.act_id, a.user_id || '/' || s.asset, a.unknown -- a status can wait for the account
  from account_act a join assets_tb s using (asset_id)
 where a.open and a.at < clock_timestamp() - interval '` + actsLate + `'`, `
select w.since, w.tx_id::text, 'BLOCKED', coalesce(clock_timestamp() - w.since > l.bound, false), w.submitter, w.tx_id, null, null, w.cause, w.last_error
  from (select h.submitter, h.cause, h.since, h.tx_id, (select m.last_error from managed_tx m where m.tx_id = h.tx_id) as last_error
          from (` + headsOfQueues("@strict::boolean") + `) as h
         union all
        select m.submitter, m.wait_cause, m.waiting_since, m.tx_id, m.last_error
          from managed_tx m
         where m.open and m.state not in ('STUCK', 'PROTECT') and m.wait_cause is not null and m.wait_cause <> 'PREDECESSOR') as w
  left join lateral (
       select u.bound
         from unnest(@chains::text[], @causes::text[], @limits::interval[]) as u (chain, cause, bound)
        where u.cause = w.cause and u.chain in ('', split_part(w.submitter, ':', 1) || ':' || split_part(w.submitter, ':', 2))
        order by u.chain desc
        limit 1) as l on true
 where w.cause <> 'PROTECT'`, `
select min(f.created_at), f.submitter, 'FOREIGN', true, f.submitter, null, null, count(*), null, null
  from foreign_hold f where f.ended_at is null group by f.submitter`, `
(with recursive ` + queueing("") + `
select h.since, w.submitter, 'HELD', true, w.submitter, h.tx_id, null, h.many, null, null
  from waiting w
 cross join lateral (
       select min(q.updated_at) as since, count(*) as many, (array_agg(q.tx_id order by q.seq))[1] as tx_id
         from (select * from managed_tx m where m.submitter = w.submitter and m.queued and m.held order by m.seq limit 1000) as q
       having count(*) > 0) as h)`, `
select min(d.oldest_at), d.endpoint, 'ENDPOINT', true, null, null, null, null, d.endpoint, max(d.last_error)
  from event_delivery_queue d
  left join event_endpoint e using (endpoint)
 where d.pending and d.endpoint = any (@endpoints::text[]) and d.oldest_at < clock_timestamp() - interval '` + eventsLate + `' and e.paused_at is null
 group by d.endpoint`, `
select e.paused_at, e.endpoint, 'PAUSED', true, null, null, null, null, e.endpoint, e.pause_reason
  from event_endpoint e where e.endpoint = any (@endpoints::text[]) and e.paused_at is not null`, `
select p.created_at, p.proposal_id::text, 'PROPOSAL', true, p.subject ->> 'submitter', (p.subject ->> 'txId')::uuid, p.subject ->> 'reqId', null, p.proposal_id::text, p.effect
  from proposal p where p.status in ('PROPOSED', 'APPROVED') and p.expires_at > clock_timestamp()`}

// attention is each item with its rank.
var attention = `(
select case when overdue then array_position(@kinds::text[], kind) else cardinality(@kinds::text[]) + 1 end as rank,
       i.since, i.kind || ' ' || i.key as key, i.kind, i.overdue,
       coalesce(i.submitter::text, '') as submitter, coalesce(i.tx_id::text, '') as tx_id, coalesce(i.req_id, '') as req_id, coalesce(i.number, 0) as number,
       coalesce(i.name, '') as name, coalesce(i.detail, '') as detail
  from (` + strings.Join(attentionSources, "\n union all") + `) as i (since, key, kind, overdue, submitter, tx_id, req_id, number, name, detail)) as items`

var (
	attentionPage = `
select rank, since, key, kind, overdue, submitter, tx_id, req_id, number, name, detail
  from ` + attention + `
 where (rank, since, key) > (@rank::integer, @since::timestamptz, @key::text)
 order by rank, since, key
 limit @size::integer`

	attentionCounts = `
select kind, overdue, count(*)
  from ` + attention + `
 group by kind, overdue
 order by min(rank), kind`
)

func (s *Store) attentionArgs(l AttentionLimits) NamedArgs {
	chains, causes, limits := make([]string, len(l.Waits)), make([]string, len(l.Waits)), make([]time.Duration, len(l.Waits))
	for i, w := range l.Waits {
		chains[i], causes[i], limits[i] = w.Chain, string(w.Cause), w.Limit
	}
	return NamedArgs{
		"strict": s.opts.Strict, "kinds": AttentionKinds(), "chains": chains, "causes": causes, "limits": limits, "endpoints": append([]string{}, l.Endpoints...),
		"pendingLimit": l.Transfers.PendingLimit, "payoutLimit": l.Transfers.PayoutLimit, "refundLimit": l.Transfers.RefundLimit,
	}
}

// Attention is a page of what needs a person, the most urgent first, and of one rank the oldest first. The
// page begins after a place; the zero value is the first page. An item whose wait changes its place between
// two pages may be on both or on none.
func (s *Store) Attention(ctx context.Context, l AttentionLimits, after AttentionPlace, size int) ([]AttentionItem, error) {
	args := s.attentionArgs(l)
	args["rank"], args["since"], args["key"], args["size"] = after.Rank, after.Since, after.Key, size
	all, err := results.All(ctx, s.db, pgx.RowToStructByPos[AttentionItem], attentionPage, args)
	return all, results.Wrap(err, "read what needs attention")
}
