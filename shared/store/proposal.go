package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/store/internal/results"
)

// NewProposal is an act that an operator proposes and another must approve.
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

// Proposal is a stored proposal.
type Proposal struct {
	ID                string
	Seq               int64
	Kind, Act         string
	Subject           json.RawMessage
	Method, Path      string
	Body              string
	Effect            string
	ObservedState     json.RawMessage // the state that it was made in
	ObservedStateHash string
	By                string
	Names             []string
	Reason            string
	CreatedAt         time.Time
	ExpiresAt         time.Time
	Status            string // PROPOSED, APPROVED, CARRIED_OUT, REJECTED, EXPIRED or STALE
	ApprovedBy        *string
	ApproveReason     *string
	ApprovedAt        *time.Time
	ClosedBy          *string
	CloseReason       *string
	ClosedAt          *time.Time
	OutcomeStatus     *int
	Outcome           *string
}

// ActState is the state that an act depends on; nil if its subject does not exist.
func (s *Store) ActState(ctx context.Context, act string, subject map[string]any) (state json.RawMessage, err error) {
	err = s.db.QueryRow(ctx, `select proposal_state($1, $2)`, act, subject).Scan(&state)
	return state, results.Wrap(err, "read the state of proposal %s", act)
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

// Verdicts of [Store.ApproveProposal] in addition to the statuses.
const (
	VerdictOpen         = "OPEN" // it may be carried out now
	VerdictSameOperator = "SAME_OPERATOR"
	VerdictForeign      = "FOREIGN"
	verdictUnknown      = "UNKNOWN"
)

// ErrUnknownProposal reports that there is no such proposal.
var ErrUnknownProposal = errors.New("there is no such proposal")

// proposalColumns show a proposal as expired once it is too old, whether or not that is
// stored.
const proposalColumns = `
select p.proposal_id::text, p.seq, p.kind, p.act, p.subject, p.method, p.path, p.body, p.effect, p.observed_state, encode(p.observed_state_hash, 'hex'), p.proposed_by, p.proposer_names, p.reason,
       p.created_at, p.expires_at, case when p.status in ('PROPOSED', 'APPROVED') and p.expires_at <= clock_timestamp() then 'EXPIRED' else p.status end,
       p.approved_by, p.approve_reason, p.approved_at, p.closed_by, p.close_reason, p.closed_at, p.outcome_status, p.outcome`

// ErrTooManyProposals reports an operator who has 100 proposals open.
var ErrTooManyProposals = errors.New("the operator has 100 open proposals")

// propose has the members of a [NewProposal].
const propose = proposalColumns + `
  from propose_act(@Kind, @Act, @Subject, @Method, @Path, @Body, @Call, @Effect, @By, @Names, @Reason, @ValidFor) as p`

// Propose stores the act. If the same operator repeats it while it is open and nothing has
// changed, the same proposal is returned. The error wraps [ErrTooManyProposals].
func (s *Store) Propose(ctx context.Context, n NewProposal) (Proposal, error) {
	n.Reason = PrintableText(n.Reason)
	p, err := results.One(ctx, s.db, pgx.RowToStructByPos[Proposal], propose, pgx.StrictStructArgs(n))
	if results.Refusal(err).Code == proposalsCode {
		err = ErrTooManyProposals
	}
	return p, results.Wrap(err, "propose %s", n.Act)
}

const (
	oneProposal   = proposalColumns + ` from proposal p where p.proposal_id = $1`
	listProposals = proposalColumns + ` from proposal p where p.seq < $1 order by p.seq desc limit $2`

	listOpenProposals = proposalColumns + `
  from proposal p
 where p.seq < $1 and p.status in ('PROPOSED', 'APPROVED') and p.expires_at > clock_timestamp()
 order by p.seq desc
 limit $2`
)

// Proposal reads one proposal. The error wraps [ErrUnknownProposal].
func (s *Store) Proposal(ctx context.Context, id string) (Proposal, error) {
	p, err := results.One(ctx, s.db, pgx.RowToStructByPos[Proposal], oneProposal, id)
	return p, results.Wrap(results.Missing(err, ErrUnknownProposal), "read proposal %s", id)
}

// Proposals lists up to limit proposals, the newest first, below the number given;
// with open only those that wait to be approved or carried out.
func (s *Store) Proposals(ctx context.Context, open bool, below int64, limit int) ([]Proposal, error) {
	statement := listProposals
	if open {
		statement = listOpenProposals
	}
	all, err := results.All(ctx, s.db, pgx.RowToStructByPos[Proposal], statement, below, limit)
	return all, results.Wrap(err, "list proposals")
}

// Approval is a second operator's approval.
type Approval struct {
	ProposalID string
	By         string
	Names      []string // every name that the operator's token has
	Reason     string
}

// ApproveProposal records the approval if nothing prevents it. The verdict is [VerdictOpen] if
// the act may be carried out now, also if another operator approved it before. Otherwise it is
// the reason. state is the state that the act depends on now.
func (s *Store) ApproveProposal(ctx context.Context, a Approval) (verdict string, state json.RawMessage, err error) {
	err = s.db.QueryRow(ctx, `select verdict, state from approve_proposal($1, $2, $3, $4)`, a.ProposalID, a.By, a.Names, PrintableText(a.Reason)).Scan(&verdict, &state)
	if err == nil && verdict == verdictUnknown {
		err = ErrUnknownProposal
	}
	return verdict, state, results.Wrap(err, "approve proposal %s", a.ProposalID)
}

// RejectProposal ends the proposal and returns the status that it had.
func (s *Store) RejectProposal(ctx context.Context, id, by, reason string) (was string, err error) {
	err = s.db.QueryRow(ctx, `select reject_proposal($1, $2, $3)`, id, by, PrintableText(reason)).Scan(&was)
	if err == nil && was == verdictUnknown {
		err = ErrUnknownProposal
	}
	return was, results.Wrap(err, "reject proposal %s", id)
}

// FinishProposal stores the act's answer. It also marks an act as carried out that could not
// share one transaction with its proposal.
func (s *Store) FinishProposal(ctx context.Context, id string, status int, answer string) error {
	_, err := s.db.Exec(ctx, `select finish_proposal($1, $2, $3)`, id, status, answer)
	return results.Wrap(err, "store the outcome of proposal %s", id)
}

type proposalKey struct{}

// WithProposal makes an act under the context carry out the approved proposal. An act in one
// transaction does so once, and only if carry_out_proposal allows it.
func WithProposal(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, proposalKey{}, id)
}

const carryOut = `select carry_out_proposal($1)`

// proposalOf is the proposal that the context carries out; "" if none.
func proposalOf(ctx context.Context) string {
	id, _ := ctx.Value(proposalKey{}).(string)
	return id
}

// queueCarryOut adds to a batch, which is one transaction, the statement that carries the
// context's proposal out. It comes after the locks of the act and before its changes.
func queueCarryOut(ctx context.Context, b *pgx.Batch) {
	if id := proposalOf(ctx); id != "" {
		b.Queue(carryOut, id)
	}
}

// CarryOut is queueCarryOut for a transaction.
func CarryOut(ctx context.Context, tx results.DB) error {
	if id := proposalOf(ctx); id != "" {
		_, err := tx.Exec(ctx, carryOut, id)
		return err
	}
	return nil
}

// ledgerWithin is how long a transaction waits for the answer of another ledger. As deployed the server ends a transaction
// after 10 s, the length of a lease: the rest is for its locks and its commit.
const ledgerWithin = 6 * time.Second

// AwaitLedger makes a call to another ledger in a transaction, which may be idle for that long. Other transactions may be
// idle for much less: see the setting database.idleInTransactionTimeout.
func AwaitLedger(ctx context.Context, tx results.DB, call func(context.Context) error) error {
	if _, err := tx.Exec(ctx, `set local idle_in_transaction_session_timeout = '7s'`); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerWithin)
	defer cancel()
	return call(ctx)
}

// Beginner is a pool.
type Beginner interface {
	results.DB
	Begin(ctx context.Context) (pgx.Tx, error)
}

// BeginCarrying makes an act in a transaction, which first carries out the context's proposal.
func BeginCarrying(ctx context.Context, db Beginner, act func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := CarryOut(ctx, tx); err != nil {
			return err
		}
		return act(tx)
	})
}

// errNothingDone ends a transaction whose act changed nothing.
var errNothingDone = errors.New("the statement changed nothing")

// ExecCarrying runs one statement that is the complete act. It carries out the context's
// proposal in the same transaction, unless the statement changes no row.
func ExecCarrying(ctx context.Context, db Beginner, statement string, args ...any) (tag pgconn.CommandTag, err error) {
	if proposalOf(ctx) == "" {
		return db.Exec(ctx, statement, args...)
	}
	err = BeginCarrying(ctx, db, func(tx pgx.Tx) (err error) {
		if tag, err = tx.Exec(ctx, statement, args...); err == nil && tag.RowsAffected() == 0 {
			err = errNothingDone
		}
		return err
	})
	if errors.Is(err, errNothingDone) {
		err = nil
	}
	return tag, err
}

// IsProposalGone reports carry_out_proposal's error: the proposal is no longer approved, or
// the state it depends on has changed. Nothing was written.
func IsProposalGone(err error) bool { return results.Refusal(err).Code == proposalCode }
