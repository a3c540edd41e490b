package conservation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/store/snapshot"
)

const evidence = `
select req_id, user_id, asset_id, units, coalesce(debit, ''), coalesce(deposit, ''), coalesce(refund, ''), type, final
  from conservation_request
 where generation = $1 and `

const terms = `
select req_id, user_id, asset_id, units, transfer_type
  from transfers_tb
 where req_id = any ($1)`

// Known reads evidence and the transfers' rows.
func (b *Book) Known(ctx context.Context, c conservation.Checkpoint, requests []string, open bool) (conservation.Known, error) {
	known := conservation.Known{Evidence: map[string]*conservation.Evidence{}, Terms: map[string]conservation.Terms{}}
	err := b.at(ctx, c, func(tx pgx.Tx) error {
		if err := readEvidence(ctx, tx, known, evidence+`req_id = any ($2)`, c.Generation, requests); err != nil {
			return err
		}
		if open {
			if err := readEvidence(ctx, tx, known, evidence+`open`, c.Generation); err != nil {
				return err
			}
			if err := readScales(ctx, tx, c.Generation, &known); err != nil {
				return err
			}
		}
		return readTerms(ctx, tx, known, requests)
	})
	return known, results.Wrap(err, "read evidence")
}

func readEvidence(ctx context.Context, tx pgx.Tx, known conservation.Known, statement string, args ...any) error {
	var e conservation.Evidence
	into := []any{&e.ReqID, &e.Account.UserID, &e.Account.AssetID, &e.Units, &e.Debit, &e.Deposit, &e.Refund, &e.Type, &e.Final}
	return results.ForEach(ctx, tx, into, func() { known.Evidence[e.ReqID] = new(e) }, statement, args...)
}

func readTerms(ctx context.Context, tx pgx.Tx, known conservation.Known, requests []string) error {
	var req string
	var t conservation.Terms
	into := []any{&req, &t.Account.UserID, &t.Account.AssetID, &t.Units, &t.Type}
	return results.ForEach(ctx, tx, into, func() { known.Terms[req] = t }, terms, requests)
}

func readScales(ctx context.Context, tx pgx.Tx, generation int64, known *conservation.Known) error {
	const scales = `select side, asset_id, precision from conservation_scale where generation = $1`
	var err error
	if known.Scales, err = results.All(ctx, tx, pgx.RowToStructByPos[conservation.Scale], scales, generation); err != nil {
		return err
	}
	known.Precision = map[int32]uint8{}
	var asset int32
	var precision uint8
	keep := func() { known.Precision[asset] = precision }
	return results.ForEach(ctx, tx, []any{&asset, &precision}, keep, `select asset_id, precision from assets_tb`)
}

const final = `
select h.tx, t.req_id, t.user_id, t.asset_id, t.units, t.transfer_type, h.state
  from (select tx, transfer_id, state
          from transfer_history
         where ` + snapshot.Unseen + ` and state in (40, -10, -30)
         order by tx
         fetch first $2 rows with ties) as h
  join transfers_tb t using (transfer_id)
 order by h.tx`

// Claims reads transfers that became final. It never splits those of one transaction.
func (b *Book) Claims(ctx context.Context, after conservation.Cursor, limit int) (p conservation.Page, err error) {
	p.Claims, p.Next, p.More, err = snapshot.ReadPage(ctx, b.db, after, limit, final, scanClaim)
	return p, results.Wrap(err, "read transfers that are final")
}

func scanClaim(row pgx.CollectableRow, tx *uint64) (c conservation.Claim, err error) {
	err = row.Scan(tx, &c.ReqID, &c.Terms.Account.UserID, &c.Terms.Account.AssetID, &c.Terms.Units, &c.Terms.Type, &c.State)
	return c, err
}

// ErrNoCheck reports that no check of conservation has been completed.
var ErrNoCheck = errors.New("no check of conservation has been completed")

const evidenceNow = `
select coalesce(r.debit, ''), coalesce(r.deposit, ''), coalesce(r.refund, '')
  from conservation_checkpoint c
  left join conservation_request r on r.generation = c.generation and r.req_id = $1
 where c.is_current and not c.over`

// EvidenceOf returns the journals' entries about the request, as far as checks have read them. It is
// empty without entries. The error is [ErrNoCheck] if no check has read the journals.
func (b *Book) EvidenceOf(ctx context.Context, reqID string) (conservation.Evidence, error) {
	e := conservation.Evidence{ReqID: reqID}
	err := b.db.QueryRow(ctx, evidenceNow, reqID).Scan(&e.Debit, &e.Deposit, &e.Refund)
	if errors.Is(err, pgx.ErrNoRows) {
		return e, ErrNoCheck
	}
	return e, results.Wrap(err, "read the evidence about %s", reqID)
}

// Last is the result of all checks so far.
type Last struct {
	At       time.Time  // when the last one was completed, by the database's clock
	Standing int        // number of open findings
	Found    []Standing // the first of them, oldest first
}

// Standing is an open finding, without its evidence.
type Standing struct {
	conservation.Finding // as in the last check
	ID                   int64
	At                   time.Time // when it was first found
}

const (
	checkedAt = `
select c.stored_at, (select count(*) from conservation_standing)
  from conservation_checkpoint c
 where c.is_current`

	standing = `
select f.finding_id, f.kind, coalesce(f.side, ''), coalesce(f.req_id, ''), f.user_id, f.asset_id, coalesce(s.expected, f.expected), coalesce(s.got, f.got), f.at
  from conservation_standing s
  join conservation_finding f using (finding_id)
 order by f.finding_id
 limit $1`
)

// Last returns the result of all checks so far, with at most limit findings; nil if no check has been
// completed.
func (b *Book) Last(ctx context.Context, limit int) (*Last, error) {
	var last Last
	batch := new(pgx.Batch)
	batch.Queue(standing, limit).Query(results.Into(&last.Found, func(row pgx.CollectableRow) (s Standing, err error) {
		err = row.Scan(&s.ID, &s.Kind, &s.Side, &s.ReqID, &s.Account.UserID, &s.Account.AssetID, &s.Expected, &s.Got, &s.At)
		return s, err
	}))
	batch.Queue(checkedAt).QueryRow(results.Scan(&last.At, &last.Standing))
	err := b.db.SendBatch(ctx, batch).Close()
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the result of the checks of conservation: %w", err)
	}
	return &last, nil
}
