package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// NewProposal is an act that an operator wants done, and that another has to approve.
type NewProposal struct {
	Kind, Act string         // see the database's function proposal_state
	Subject   map[string]any // what the act is about
	Method    string
	Path      string
	Body      string // of the call
	Call      string // the body without its reason: the same is the same act
	Effect    string // what will happen
	By        string
	Names     []string // every name that the operator's token has
	Reason    string
	ValidFor  time.Duration
}

// Proposal is one that is stored.
type Proposal struct {
	ID            string
	Seq           int64
	Kind, Act     string
	Subject       json.RawMessage
	Method, Path  string
	Body          string
	Effect        string
	Saw           json.RawMessage // the state that it was made in
	SawHash       string
	By            string
	Names         []string
	Reason        string
	CreatedAt     time.Time
	ExpiresAt     time.Time
	Status        string // PROPOSED, APPROVED, CARRIED_OUT, REJECTED, EXPIRED or STALE
	ApprovedBy    *string
	ApproveReason *string
	ApprovedAt    *time.Time
	ClosedBy      *string
	CloseReason   *string
	ClosedAt      *time.Time
	OutcomeStatus *int
	Outcome       *string
}

// ActState is what an act stands on now; nil: its subject is not there.
func (s *Store) ActState(ctx context.Context, act string, subject map[string]any) (state json.RawMessage, err error) {
	if err := s.db.QueryRow(ctx, `select proposal_state($1, $2)`, act, subject).Scan(&state); err != nil {
		return nil, fmt.Errorf("read what %s stands on: %w", act, err)
	}
	return state, nil
}

// Statuses of proposals.
const (
	ProposalOpen       = "PROPOSED"
	ProposalApproved   = "APPROVED"
	ProposalCarriedOut = "CARRIED_OUT"
	ProposalRejected   = "REJECTED"
	ProposalExpired    = "EXPIRED"
	ProposalStale      = "STALE"
)

// Verdicts of [Store.ApproveProposal] beside the statuses.
const (
	VerdictOpen         = "OPEN" // it may be carried out now
	VerdictSameOperator = "SAME_OPERATOR"
	VerdictForeign      = "FOREIGN"
	verdictUnknown      = "UNKNOWN"
)

// ErrUnknownProposal reports a proposal that is not there.
var ErrUnknownProposal = errors.New("there is no such proposal")

// proposalColumns show a proposal that is too old as expired, whether or not that is stored.
const proposalColumns = `
select p.proposal_id::text, p.seq, p.kind, p.act, p.subject, p.method, p.path, p.body, p.effect, p.saw, encode(p.saw_hash, 'hex'), p.proposed_by, p.proposer_names, p.reason,
       p.created_at, p.expires_at, case when p.status in ('PROPOSED', 'APPROVED') and p.expires_at <= clock_timestamp() then 'EXPIRED' else p.status end,
       p.approved_by, p.approve_reason, p.approved_at, p.closed_by, p.close_reason, p.closed_at, p.outcome_status, p.outcome`

// ErrTooManyProposals reports an operator who has 100 proposals open.
var ErrTooManyProposals = errors.New("the operator has 100 open proposals")

// Propose stores the act. The same operator who proposes the same again, while it is open
// and nothing has changed, gets the same proposal. The error wraps [ErrTooManyProposals].
func (s *Store) Propose(ctx context.Context, n NewProposal) (Proposal, error) {
	rows, err := s.db.Query(ctx, proposalColumns+` from propose_act($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, make_interval(secs => $12)) as p`,
		n.Kind, n.Act, n.Subject, n.Method, n.Path, n.Body, n.Call, n.Effect, n.By, n.Names, printableText(n.Reason), n.ValidFor.Seconds())
	if err != nil {
		return Proposal{}, fmt.Errorf("propose %s: %w", n.Act, err)
	}
	p, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Proposal])
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == proposalsCode {
		err = ErrTooManyProposals
	}
	if err != nil {
		return p, fmt.Errorf("propose %s: %w", n.Act, err)
	}
	return p, nil
}

// Proposal is one of them. The error wraps [ErrUnknownProposal].
func (s *Store) Proposal(ctx context.Context, id string) (Proposal, error) {
	rows, err := s.db.Query(ctx, proposalColumns+` from proposal p where p.proposal_id = $1`, id)
	if err != nil {
		return Proposal{}, fmt.Errorf("read proposal %s: %w", id, err)
	}
	p, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Proposal])
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return p, fmt.Errorf("%s: %w", id, ErrUnknownProposal)
	case err != nil:
		return p, fmt.Errorf("read proposal %s: %w", id, err)
	}
	return p, nil
}

// Proposals lists up to limit proposals, the newest first, below the number given (0: all);
// with open only those that wait to be approved or carried out.
func (s *Store) Proposals(ctx context.Context, open bool, below int64, limit int) ([]Proposal, error) {
	which := ""
	if open {
		which = ` and p.status in ('PROPOSED', 'APPROVED') and p.expires_at > clock_timestamp()`
	}
	rows, err := s.db.Query(ctx, proposalColumns+` from proposal p where ($1 = 0 or p.seq < $1)`+which+` order by p.seq desc limit $2`, below, limit)
	if err != nil {
		return nil, fmt.Errorf("list proposals: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Proposal])
}

// Approval is a second operator's word.
type Approval struct {
	ProposalID string
	By         string
	Names      []string // every name that the operator's token has
	Reason     string
}

// ApproveProposal records the approval, where nothing is against it. The verdict is
// [VerdictOpen] where the act may be carried out now, also where another operator has
// approved it before. Otherwise it is the reason. state is what the act stands on now.
func (s *Store) ApproveProposal(ctx context.Context, a Approval) (verdict string, state json.RawMessage, err error) {
	err = s.db.QueryRow(ctx, `select verdict, state from approve_proposal($1, $2, $3, $4)`, a.ProposalID, a.By, a.Names, printableText(a.Reason)).Scan(&verdict, &state)
	if err == nil && verdict == verdictUnknown {
		err = ErrUnknownProposal
	}
	if err != nil {
		return "", nil, fmt.Errorf("approve proposal %s: %w", a.ProposalID, err)
	}
	return verdict, state, nil
}

// RejectProposal ends the proposal, and returns the status that it had.
func (s *Store) RejectProposal(ctx context.Context, id, by, reason string) (was string, err error) {
	err = s.db.QueryRow(ctx, `select reject_proposal($1, $2, $3)`, id, by, printableText(reason)).Scan(&was)
	if err == nil && was == verdictUnknown {
		err = ErrUnknownProposal
	}
	if err != nil {
		return "", fmt.Errorf("reject proposal %s: %w", id, err)
	}
	return was, nil
}

// FinishProposal keeps what the act answered. An act that could not be carried out in one
// transaction with its proposal is carried out by it.
func (s *Store) FinishProposal(ctx context.Context, id string, status int, answer string) error {
	if _, err := s.db.Exec(ctx, `select finish_proposal($1, $2, $3)`, id, status, answer); err != nil {
		return fmt.Errorf("keep what proposal %s came to: %w", id, err)
	}
	return nil
}

type proposalKey struct{}

// WithProposal has an act under the context carry out the approved proposal. An act in one
// transaction does so once, and only where carry_out_proposal lets it.
func WithProposal(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, proposalKey{}, id)
}

const carryOut = `select carry_out_proposal($1)`

// proposalOf is the one that the context carries out; "": none.
func proposalOf(ctx context.Context) string {
	id, _ := ctx.Value(proposalKey{}).(string)
	return id
}

// queueCarryOut adds to a batch, which is one transaction, that it carries the context's
// proposal out. It stands behind the locks of the act, and before what it changes.
func queueCarryOut(ctx context.Context, b *pgx.Batch) {
	if id := proposalOf(ctx); id != "" {
		b.Queue(carryOut, id)
	}
}

// Execer is a transaction, or a pool.
type Execer interface {
	Exec(ctx context.Context, statement string, args ...any) (pgconn.CommandTag, error)
}

// CarryOut is queueCarryOut for a transaction.
func CarryOut(ctx context.Context, tx Execer) error {
	if id := proposalOf(ctx); id != "" {
		_, err := tx.Exec(ctx, carryOut, id)
		return err
	}
	return nil
}

// Beginner is a pool.
type Beginner interface {
	Execer
	Begin(ctx context.Context) (pgx.Tx, error)
}

// errNothingDone ends a transaction whose act had nothing to do.
var errNothingDone = errors.New("the statement changed nothing")

// ExecCarrying runs one statement that is a whole act. A proposal of the context is
// carried out with it, unless it changes no row.
func ExecCarrying(ctx context.Context, db Beginner, statement string, args ...any) (tag pgconn.CommandTag, err error) {
	if proposalOf(ctx) == "" {
		return db.Exec(ctx, statement, args...)
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) (err error) {
		if err = CarryOut(ctx, tx); err == nil {
			tag, err = tx.Exec(ctx, statement, args...)
		}
		if err == nil && tag.RowsAffected() == 0 {
			err = errNothingDone
		}
		return err
	})
	if errors.Is(err, errNothingDone) {
		err = nil
	}
	return tag, err
}

// IsProposalGone is true of carry_out_proposal's error: the proposal is not approved any
// more, or its state has changed. Nothing was written.
func IsProposalGone(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == proposalCode
}
