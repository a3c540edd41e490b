package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Audit is what [Store.VerifyAudit] read: the rows of submitter_change and tx_decision,
// which say who decided what.
type Audit struct {
	Submitters int
	Links      int64
	Older      int64            // links of rows that are older than the chain: their login is not known
	Unsealed   int64            // links since the last seal: the next mark has them
	Seal       mark.Seal        // the last one
	Logins     map[string]int64 // links, by the login of the database that wrote the row
	Findings   []string         // contradictions, at most [maxFindings]; empty if all rows fit
	More       int              // findings that are not listed
}

// maxFindings is the largest number of findings that are listed.
const maxFindings = 100

func (a *Audit) find(format string, values ...any) {
	if len(a.Findings) == maxFindings {
		a.More++
		return
	}
	a.Findings = append(a.Findings, fmt.Sprintf(format, values...))
}

// linkTexts are the links in their order, with the text that each hash covers. The statement
// builds the text itself instead of calling audit_text: the database's owner can change that
// function.
const linkTexts = `
select l.submitter, l.number, coalesce(l.by_role, ''), l.by_role is null, l.hash, c.id is not null or d.id is not null,
       coalesce(c.submitter, m.submitter, l.submitter) = l.submitter,
       pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('submitter', l.submitter, 'number', l.number, 'role', l.by_role,
         'linked', extract(epoch from l.at)::text,
         'change', case when c.id is not null then pg_catalog.jsonb_build_object('id', c.id, 'submitter', c.submitter, 'action', c.action, 'by', c.by,
           'reason', c.reason, 'policy', c.policy, 'fromSigner', c.from_signer, 'toSigner', c.to_signer, 'fromCallers', c.from_callers,
           'toCallers', c.to_callers, 'succeeds', c.succeeds, 'fromMaxInFlight', c.from_max_in_flight, 'toMaxInFlight', c.to_max_in_flight,
           'fromName', c.from_name, 'toName', c.to_name, 'at', extract(epoch from c.at)::text,
           'proposal', c.proposal, 'approvedBy', c.approved_by) end,
         'decision', case when d.id is not null then pg_catalog.jsonb_build_object('id', d.id, 'tx', d.tx_id, 'action', d.action, 'by', d.by,
           'reason', d.reason, 'operator', d.operator, 'at', extract(epoch from d.at)::text, 'proposal', d.proposal, 'approvedBy', d.approved_by) end))::text
  from audit_link l
  left join submitter_change c on c.id = l.change_id
  left join tx_decision d on d.id = l.decision_id
  left join managed_tx m on m.tx_id = d.tx_id
 order by l.submitter collate "C", l.number`

const (
	unlinkedRows = `
select 'change ' || c.id || ' of ' || c.submitter
  from submitter_change c where not exists (select from audit_link l where l.change_id = c.id)
 union all
select 'decision ' || d.id || ' about transaction ' || d.tx_id
  from tx_decision d where not exists (select from audit_link l where l.decision_id = d.id)
 order by 1
 limit $1`
	auditHeads = `select submitter, number, hash, sealed from audit_head where number > 0`
	auditSeals = `select number, heads::text, hash from audit_seal order by number`
	sealHeads  = `
select z.number, h.key, (h.value ->> 0)::bigint
  from audit_seal z
 cross join lateral jsonb_each(z.heads) h
  left join audit_link l on l.submitter = h.key and l.number = (h.value ->> 0)::bigint
 where encode(l.hash, 'hex') is distinct from (h.value ->> 1)
 order by 1, 2
 limit $1`
)

// chainEnd is the last link of a submitter's chain.
type chainEnd struct {
	number int64
	hash   []byte
}

// VerifyAudit recomputes the hash chain over the audit rows. It compares the chain with the
// stored links, with the seals, and with the seal marked by the mark. The caller reads the
// mark first; marked is nil if there is none. report gets the number of links read and the
// total, at intervals. VerifyAudit reads one snapshot and writes nothing.
func (s *Store) VerifyAudit(ctx context.Context, marked *mark.Seal, report func(done, all int64)) (a Audit, err error) {
	err = pgx.BeginTxFunc(ctx, s.db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		a = Audit{Logins: make(map[string]int64)}
		ends, err := a.readLinks(ctx, tx, report)
		if err != nil {
			return err
		}
		if err := a.readUnlinked(ctx, tx); err != nil {
			return err
		}
		if err := a.compareHeads(ctx, tx, ends); err != nil {
			return err
		}
		hashes, err := a.readSeals(ctx, tx)
		if err != nil {
			return err
		}
		if marked != nil {
			a.compareMark(*marked, hashes)
		}
		return nil
	})
	return a, results.Wrap(err, "verify the audit rows")
}

// reportEvery is how many links are read between two reports.
const reportEvery = 50_000

// readLinks follows the chains and returns the last computed link of each.
func (a *Audit) readLinks(ctx context.Context, tx pgx.Tx, report func(done, all int64)) (map[txmanager.Submitter]chainEnd, error) {
	var all int64
	if err := tx.QueryRow(ctx, `select count(*) from audit_link`).Scan(&all); err != nil {
		return nil, err
	}
	ends := make(map[txmanager.Submitter]chainEnd)
	var sub txmanager.Submitter
	var number int64
	var login, text string
	var older, there, ours bool
	var hash []byte
	err := results.ForEach(ctx, tx, []any{&sub, &number, &login, &older, &hash, &there, &ours, &text}, func() {
		last := ends[sub]
		computed := sha256.Sum256(append(slices.Clone(last.hash), text...))
		switch {
		case number != last.number+1:
			a.find("%s: links %d to %d are gone", sub, last.number+1, number-1)
		case !there:
			a.find("%s: the row of link %d is gone", sub, number)
		case !bytes.Equal(computed[:], hash):
			a.find("%s: link %d does not fit its row and the link before it: one of them was changed", sub, number)
		case !ours:
			a.find("%s: the row of link %d is another submitter's", sub, number)
		}
		ends[sub] = chainEnd{number, slices.Clone(hash)} // what follows is held against what is stored, so that one change is one finding
		if older {
			a.Older++
		} else {
			a.Logins[login]++
		}
		if a.Links++; a.Links%reportEvery == 0 && report != nil {
			report(a.Links, all)
		}
	}, linkTexts)
	a.Submitters = len(ends)
	return ends, err
}

func (a *Audit) readUnlinked(ctx context.Context, tx pgx.Tx) error {
	unlinked, err := results.All(ctx, tx, pgx.RowTo[string], unlinkedRows, maxFindings+1)
	for _, row := range unlinked {
		a.find("%s has no link: it was written with the chain switched off", row)
	}
	return err
}

// compareHeads compares the last link of each chain with its stored head.
func (a *Audit) compareHeads(ctx context.Context, tx pgx.Tx, ends map[txmanager.Submitter]chainEnd) error {
	var sub txmanager.Submitter
	var number, sealed int64
	var hash []byte
	err := results.ForEach(ctx, tx, []any{&sub, &number, &hash, &sealed}, func() {
		end := ends[sub]
		if end.number != number || !bytes.Equal(end.hash, hash) {
			a.find("%s: its chain ends with link %d, and its head is %d", sub, end.number, number)
		}
		a.Unsealed += max(number-sealed, 0)
		delete(ends, sub)
	}, auditHeads)
	for sub := range ends {
		a.find("%s: its chain has no head", sub)
	}
	return err
}

// readSeals recomputes the seals, compares what they hold with the links, and returns their
// hashes by number.
func (a *Audit) readSeals(ctx context.Context, tx pgx.Tx) (map[int64]string, error) {
	hashes := make(map[int64]string)
	var last chainEnd
	var number int64
	var heads string
	var hash []byte
	err := results.ForEach(ctx, tx, []any{&number, &heads, &hash}, func() {
		computed := sha256.Sum256(append(slices.Clone(last.hash), strconv.FormatInt(number, 10)+" "+heads...))
		switch {
		case number != last.number+1:
			a.find("seals %d to %d are gone", last.number+1, number-1)
		case !bytes.Equal(computed[:], hash):
			a.find("the hash of seal %d does not match its heads and the seal before it", number)
		}
		last = chainEnd{number, slices.Clone(hash)}
		hashes[number] = hex.EncodeToString(hash)
	}, auditSeals)
	if err != nil {
		return nil, err
	}
	a.Seal = mark.Seal{Number: last.number, Hash: hex.EncodeToString(last.hash)}
	var sub string
	var link int64
	err = results.ForEach(ctx, tx, []any{&number, &sub, &link}, func() {
		a.find("%s: link %d differs from the one in seal %d", sub, link, number)
	}, sealHeads, maxFindings+1)
	return hashes, err
}

// compareMark compares the seals with the one that was written outside the database.
func (a *Audit) compareMark(marked mark.Seal, hashes map[int64]string) {
	hash, there := hashes[marked.Number]
	switch {
	case marked == mark.Seal{} && len(hashes) > 0:
		a.find("the mark names no seal, and the database has %d: a release without seals wrote the mark; run this again after the next sweep", len(hashes))
	case marked == mark.Seal{}:
	case !there:
		a.find("the mark names seal %d, and the last one of the database is %d: audit rows are gone, or the database is an older copy", marked.Number, a.Seal.Number)
	case hash != marked.Hash:
		a.find("seal %d differs from the one in the mark: audit rows were rewritten, or the database is another copy", marked.Number)
	}
}
