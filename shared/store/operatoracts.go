package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/fencepost/fencepost/shared/store/internal/results"
)

// OperatorAct is one recorded act of an operator.
type OperatorAct struct {
	At         time.Time
	Source     int   // the place of its source in actSources, from 1 on
	ID         int64 // its number within the source
	By         string
	Act        string
	Kind       string // of the subject: submitter, tx, transfer, …
	Subject    string
	Submitter  *string // to which the subject belongs, if it is no submitter itself
	Reason     *string
	ApprovedBy *string // the second operator; nil: none was needed
	Proposal   *string
	Before     json.RawMessage // what the act changed, where it is kept; nil: it is not
	After      json.RawMessage
}

// actSource reads the acts of operators from one table. To add a source, append it to actSources, give the table an
// index on at and id, and name the acts in the description of GET /admin/v1/audit. The tests fail while a table has
// a column for a person's reason that no source reads.
//
// The expressions are over the table's row r. Those of at and id must be the index's.
type actSource struct {
	table      string
	where      string // the index's condition; "": it has none
	at, id     string
	by         string
	act        string   // "": the only one of acts
	acts       []string // the values that act can have
	kind       string
	subject    string
	submitter  string // "": null, as of the following
	reason     string
	approvedBy string
	proposal   string
	before     string // jsonb
	after      string // jsonb
}

const (
	reqIDOf = `(select t.req_id from transfers_tb t where t.transfer_id = r.transfer_id)`
	payerOf = `(select t.payout_submitter from transfers_tb t where t.transfer_id = r.transfer_id)`
)

// actSources are the sources of the list of operators' acts, in the order of acts with the same time. Page tokens
// have their places, so a new one is appended.
var actSources = []actSource{
	{table: "submitter", at: "r.created_at", id: "hashtextextended(r.submitter, 0)", by: "r.created_by", acts: []string{"register"},
		kind: "submitter", subject: "r.submitter", reason: "r.start_reason", after: `jsonb_build_object('startNonce', r.start_nonce)`},
	{table: "submitter_change", at: "r.at", id: "r.id", by: `r.by`, act: "lower(r.action)",
		acts: []string{"suspend", "resume", "policy", "signer", "callers", "approved", "update", "retire"},
		kind: "submitter", subject: "r.submitter", reason: "r.reason", approvedBy: "r.approved_by", proposal: "r.proposal",
		before: `jsonb_build_object('signer', r.from_signer, 'callers', r.from_callers, 'maxInFlight', r.from_max_in_flight, 'name', r.from_name)`,
		after:  `jsonb_build_object('signer', r.to_signer, 'callers', r.to_callers, 'succeeds', r.succeeds, 'maxInFlight', r.to_max_in_flight, 'name', r.to_name, 'policy', r.policy)`},
	{table: "tx_decision", where: "r.operator", at: "r.at", id: "r.id", by: "r.by", act: "lower(r.action)",
		acts: []string{"cancel", "wait", "rebroadcast", "replace", "placeholder", "proceed"},
		kind: "tx", subject: "r.tx_id::text", submitter: `(select m.submitter from managed_tx m where m.tx_id = r.tx_id)`,
		reason: "r.reason", approvedBy: "r.approved_by", proposal: "r.proposal"},
	{table: "protect_incident", where: "r.closed_at is not null", at: "r.closed_at", id: "hashtextextended(r.submitter || '/' || r.incident, 0)", by: "r.closed_by",
		acts: []string{"release"}, kind: "submitter", subject: "r.submitter", reason: "r.reason",
		after: `jsonb_build_object('incident', r.incident, 'mode', r.mode, 'released', r.released)`},
	{table: "foreign_hold", where: "r.ended_at is not null", at: "r.ended_at", id: "hashtextextended(r.submitter || '/' || r.nonce, 0)", by: "r.by",
		act: "case r.outcome when 'MATCHED' then 'foreign-match' else 'foreign-write-off' end", acts: []string{"foreign-match", "foreign-write-off"},
		kind: "submitter", subject: "r.submitter", reason: "r.reason", after: `jsonb_build_object('nonce', r.nonce, 'txId', r.tx_id)`},
	{table: "identity_change", at: "r.at", id: "r.id", by: "r.by", acts: []string{"database-accept"},
		kind: "database", subject: "''", reason: "r.reason", after: `jsonb_build_object('systemIdentifier', r.system_identifier::text, 'timeline', r.timeline_id)`},
	{table: "transfer_resolution", at: "r.at", id: "r.id", by: "r.by", act: "case r.op when 'cancel' then 'transfer-cancel' else 'transfer-resolve' end",
		acts: []string{"transfer-cancel", "transfer-resolve"}, kind: "transfer", subject: reqIDOf, submitter: payerOf, reason: "r.reason",
		after: `jsonb_build_object('op', r.op, 'outcome', r.outcome, 'line', r.line::text, 'verdict', r.verdict)`},
	{table: "transfer_acknowledgement", at: "r.at", id: "r.id", by: "r.by", acts: []string{"transfer-acknowledge"},
		kind: "transfer", subject: reqIDOf, submitter: payerOf, reason: "r.reason", after: `jsonb_build_object('until', r.until)`},
	{table: "transfer_halt", where: "r.resumed_at is not null", at: "r.resumed_at", id: "r.halt_id", by: "r.resumed_by", acts: []string{"halt-resume"},
		kind: "halt", subject: "r.halt_id::text", reason: "r.resume_reason", before: `jsonb_build_object('scope', r.scope, 'userId', r.user_id, 'assetId', r.asset_id, 'since', r.since)`},
	{table: "payout_statement", at: "r.at", id: "r.id", by: "r.by", acts: []string{"payout-state"},
		kind: "transfer", subject: "r.req_id", reason: "r.reason", after: `jsonb_build_object('statement', r.id, 'paid', r.paid, 'txHash', r.tx_hash, 'refund', r.refund)`},
	{table: "payout_statement", where: "r.withdrawn_at is not null", at: "r.withdrawn_at", id: "r.id", by: "r.withdrawn_by", acts: []string{"payout-withdraw"},
		kind: "transfer", subject: "r.req_id", reason: "r.withdraw_reason", before: `jsonb_build_object('statement', r.id, 'paid', r.paid, 'txHash', r.tx_hash, 'refund', r.refund)`},
	{table: "payout_address", where: "r.removed_by <> 'user'", at: "r.removed_at", id: "r.address_id", by: "r.removed_by", acts: []string{"address-remove"},
		kind: "user", subject: "r.user_id::text", reason: "r.remove_reason", before: `jsonb_build_object('addressId', r.address_id, 'chainId', r.chain_id, 'address', r.address)`},
	{table: "payout_address_block", at: "r.at", id: "r.block_id", by: "r.by", acts: []string{"addresses-block"},
		kind: "user", subject: "r.user_id::text", reason: "r.reason"},
	{table: "payout_address_block", where: "r.lifted_at is not null", at: "r.lifted_at", id: "r.block_id", by: "r.lifted_by", acts: []string{"addresses-unblock"},
		kind: "user", subject: "r.user_id::text", reason: "r.lift_reason"},
	{table: "conservation_adjustment", at: "r.at", id: "r.id", by: "r.by", acts: []string{"adjust"}, kind: "finding", subject: "r.finding_id::text", reason: "r.reason",
		after: `jsonb_build_object('side', r.side, 'op', r.op, 'userId', r.user_id, 'assetId', r.asset_id, 'units', r.units::text, 'appliedAt', r.applied_at)`},
	{table: "proposal", at: "r.created_at", id: "r.seq", by: "r.proposed_by", acts: []string{"propose"}, kind: "proposal", subject: "r.proposal_id::text",
		submitter: "r.subject ->> 'submitter'", reason: "r.reason", proposal: "r.proposal_id", after: `jsonb_build_object('effect', r.effect, 'method', r.method, 'path', r.path)`},
	{table: "proposal", where: "r.approved_at is not null", at: "r.approved_at", id: "r.seq", by: "r.approved_by", acts: []string{"approve"},
		kind: "proposal", subject: "r.proposal_id::text", submitter: "r.subject ->> 'submitter'", reason: "r.approve_reason", proposal: "r.proposal_id",
		after: `jsonb_build_object('effect', r.effect, 'proposedBy', r.proposed_by)`},
	{table: "proposal", where: "r.closed_by is not null", at: "r.closed_at", id: "r.seq", by: "r.closed_by", acts: []string{"reject"},
		kind: "proposal", subject: "r.proposal_id::text", submitter: "r.subject ->> 'submitter'", reason: "r.close_reason", proposal: "r.proposal_id",
		before: `jsonb_build_object('effect', r.effect, 'proposedBy', r.proposed_by)`},
	{table: "asset_change", at: "r.at", id: "r.id", by: "r.by", acts: []string{"asset"}, kind: "asset",
		subject: "(select a.asset from assets_tb a where a.asset_id = r.asset_id)", reason: "r.reason", approvedBy: "r.approved_by", proposal: "r.proposal",
		before: "r.before", after: "r.after"},
	{table: "account_act", where: "not r.of_service", at: "r.at", id: "r.act_id", by: "r.by", act: "case r.kind when 'STATUS' then 'account-status' else lower(r.kind) end",
		acts: []string{"deposit", "withdrawal", "account-status"}, kind: "user", subject: "r.user_id::text", reason: "r.reason", approvedBy: "r.approved_by", proposal: "r.proposal",
		after: `jsonb_strip_nulls(jsonb_build_object('id', r.request_id, 'account', r.ledger, 'assetId', r.asset_id, 'units', r.units::text, 'status', r.status, 'funding', r.funding, 'trading', r.trading))`},
	{table: "webhook_act", at: "r.at", id: "r.id", by: "r.by", act: "'webhook-' || lower(r.action)",
		acts: []string{"webhook-test", "webhook-redeliver", "webhook-pause", "webhook-resume"}, kind: "webhookEndpoint", subject: "r.endpoint", submitter: "r.submitter",
		reason: "r.reason", approvedBy: "r.approved_by", proposal: "r.proposal", after: `jsonb_build_object('after', r.after_position::text, 'status', r.status, 'answer', r.answer)`},
	{table: "account_act_ending", at: "r.at", id: "r.act_id", by: "r.by", acts: []string{"account-act-end"}, kind: "user",
		subject: "(select a.user_id::text from account_act a where a.act_id = r.act_id)", reason: "r.reason", approvedBy: "r.approved_by", proposal: "r.proposal",
		after: `(select jsonb_build_object('kind', a.kind, 'id', a.request_id, 'account', a.ledger, 'assetId', a.asset_id, 'units', a.units::text, 'trading', a.trading,
			'line', r.line::text, 'readAfter', r.read_after::text, 'readUpto', r.read_upto::text) from account_act a where a.act_id = r.act_id)`},
}

// ActNames are the names of all acts, sorted.
func ActNames() (names []string) {
	for _, s := range actSources {
		names = append(names, s.acts...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

const (
	// actWindow is the number of rows of each source that one statement reads in the order of its index. The planner
	// must know it, so it is no parameter.
	actWindow = "1000"
	// actRounds bounds the round trips of one page.
	actRounds = 5
)

// statement reads those acts of the next window that the filters let pass. The window begins before the time $1 and the
// number $2, and has no act before $3. The filters are $4 by, $5 the act and $6 the subject; $7 is the most acts. Each
// row has the place where a full window ends, and null for the act if none passes.
func (s actSource) statement() string {
	text := func(expression string) string { return cmp.Or(expression, "null") + `::text` }
	document := func(expression string) string {
		return `nullif(jsonb_strip_nulls(` + cmp.Or(expression, "null") + `), '{}')`
	}
	key := `(` + s.at + `, ` + s.id + `)`
	order := ` order by ` + s.at + ` desc, ` + s.id + ` desc`
	return `
with w as materialized (
  select ` + strings.Join([]string{s.at + ` as at`, s.id + ` as id`, text(s.by) + ` as by`, text(cmp.Or(s.act, `'`+s.acts[0]+`'`)) + ` as act`, text(s.subject) + ` as subject`,
		text(s.submitter) + ` as submitter`, text(s.reason) + ` as reason`, text(s.approvedBy) + ` as approved_by`, text(s.proposal) + ` as proposal`,
		document(s.before) + ` as before`, document(s.after) + ` as after`}, `, `) + `
    from ` + s.table + ` r
   where ` + cmp.Or(s.where, "true") + ` and ` + key + ` < ($1, $2) and ` + s.at + ` >= $3` + order + `
   limit ` + actWindow + `
), bound as (
  select at, id from w order by at desc, id desc offset ` + actWindow + ` - 1
)
select b.at, b.id, m.*
  from (select (select at from bound) as at, (select id from bound) as id) as b
  left join lateral (
       select * from w
        where ($4 = '' or w.by = $4) and ($5 = '' or w.act = $5) and ($6 = '' or w.subject = $6 or w.submitter = $6)
        order by w.at desc, w.id desc
        limit $7) as m on true`
}

// ActQuery requests one page of the acts of operators, newest first.
type ActQuery struct {
	By      string // the operator; "": of all
	Act     string // one of [ActNames]; "": all
	Subject string // a submitter, with what belongs to it, or another subject; "": of all
	Since   time.Time
	Before  *ActPlace // nil: from the newest on
	Size    int       // maximum, at least 1
}

// ActPlace is the position of an act in the list.
type ActPlace struct {
	At     time.Time
	Source int
	ID     int64
}

// compare is positive if p is newer than o.
func (p ActPlace) compare(o ActPlace) int {
	return cmp.Or(p.At.Compare(o.At), cmp.Compare(p.Source, o.Source), cmp.Compare(p.ID, o.ID))
}

// boundOf is the number before which the rows of source begin, among those with the place's time.
func (p ActPlace) boundOf(source int) int64 {
	switch {
	case source < p.Source:
		return math.MaxInt64
	case source > p.Source:
		return math.MinInt64
	}
	return p.ID
}

func (a OperatorAct) place() ActPlace { return ActPlace{a.At, a.Source, a.ID} }

// OperatorActs returns a page of the acts of operators, newest first, and the place of the next page; nil at the end. It
// reads windows of each source until the page is full. Only after [actRounds] windows a page can be shorter and still
// have a next one.
func (s *Store) OperatorActs(ctx context.Context, q ActQuery) (page []OperatorAct, next *ActPlace, err error) {
	at := *cmp.Or(q.Before, &ActPlace{At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)})
	for range actRounds {
		found, end, err := s.readActs(ctx, q, at)
		if err != nil {
			return nil, nil, fmt.Errorf("list the acts of operators: %w", err)
		}
		if page = append(page, found...); len(page) > q.Size {
			last := page[q.Size-1].place()
			return page[:q.Size], &last, nil
		}
		if end == nil {
			return page, nil, nil
		}
		at = *end
	}
	return page, &at, nil
}

// readActs reads the next window of each source in one round trip, and merges the acts down to the place where the first
// window ends. That place is nil if all sources end.
func (s *Store) readActs(ctx context.Context, q ActQuery, before ActPlace) (found []OperatorAct, end *ActPlace, err error) {
	b := new(pgx.Batch)
	for i, source := range actSources {
		number := i + 1
		if q.Act != "" && !slices.Contains(source.acts, q.Act) {
			continue
		}
		b.Queue(source.statement(), before.At, before.boundOf(number), q.Since, q.By, q.Act, q.Subject, q.Size+1).Query(func(rows pgx.Rows) error {
			acts, bound, err := scanActs(rows, number, source.kind)
			if found = append(found, acts...); bound != nil && (end == nil || bound.compare(*end) > 0) {
				end = bound
			}
			return err
		})
	}
	if err := s.send(ctx, b); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(found, func(a, b OperatorAct) int { return b.place().compare(a.place()) })
	if end != nil {
		found = slices.DeleteFunc(found, func(a OperatorAct) bool { return a.place().compare(*end) < 0 })
	}
	return found, end, nil
}

// scanActs reads the rows of [actSource.statement], and the place where a full window ends.
func scanActs(rows pgx.Rows, number int, kind string) (acts []OperatorAct, end *ActPlace, err error) {
	type row struct {
		boundAt     *time.Time
		boundID     *int64
		OperatorAct // zero if no act passes the filters
	}
	all, err := pgx.CollectRows(rows, func(from pgx.CollectableRow) (r row, err error) {
		r.Source, r.Kind = number, kind
		err = from.Scan(&r.boundAt, &r.boundID, (*zeronull.Timestamptz)(&r.At), (*zeronull.Int8)(&r.ID), (*zeronull.Text)(&r.By), (*zeronull.Text)(&r.Act),
			(*zeronull.Text)(&r.Subject), &r.Submitter, &r.Reason, &r.ApprovedBy, &r.Proposal, &r.Before, &r.After)
		return r, err
	})
	for _, r := range all {
		if r.boundAt != nil {
			end = &ActPlace{*r.boundAt, number, *r.boundID}
		}
		if !r.At.IsZero() {
			acts = append(acts, r.OperatorAct)
		}
	}
	return acts, end, results.Wrap(err, "read acts of %s", kind)
}
