package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/nonce"
)

// Intent is what a caller wants done once.
type Intent struct {
	TxID        string // a new UUID
	Submitter   nonce.Submitter
	RequestID   string // the caller's, unique per submitter; compared byte for byte
	Caller      string
	Payload     []byte // canonical JSON
	Handler     string // makes the transaction out of the payload; "": the payload is the transaction
	Fingerprint [32]byte
}

// Accepted is what is on record for an intent.
type Accepted struct {
	TxID   string
	New    bool  // this call stored it
	Queued bool  // it waits for its nonce: an advance is due
	Token  int64 // in force after the commit; 0 before the first tenure
}

// Errors of [Store.Create]. After each, this attempt has stored nothing.
var (
	ErrRequestConflict = errors.New("the requestId is taken by another payload, or by another caller")
	ErrProtected       = errors.New("the submitter is in PROTECT")
	ErrSuspended       = errors.New("the submitter is suspended")
	ErrQueueFull       = errors.New("the submitter's queue is full")
)

// insertIntent locks no row that anybody else needs: creates never wait for each
// other, nor for a running advance.
const insertIntent = `
insert into managed_tx (tx_id, submitter, request_id, caller, payload, handler, fingerprint, fencing_token)
select $1, s.submitter, $3, $4, $5, nullif($8, ''), $6, (select fencing_token from submitter_lease where submitter = s.submitter)
  from submitter s
 where s.submitter = $2 and s.status = 'ACTIVE' and is_authority() and s.callers && array['*', $4]
   and not exists (select from protect_episode p where p.submitter = s.submitter and p.closed_at is null)
   and ($7::int = 0 or not exists (select from managed_tx q where q.submitter = s.submitter and q.state = 'QUEUED'
                                    order by q.seq offset $7 - 1 limit 1))
    on conflict (submitter, request_id) do nothing`

// findIntent answers by what is stored, and reads the token in a statement after
// the commit: a token read before it may name a task that is used up already.
const findIntent = `
select s.status, s.callers && array['*', $3], is_authority(),
       exists (select from protect_episode p where p.submitter = s.submitter and p.closed_at is null),
       coalesce(l.fencing_token, 0), coalesce(m.tx_id::text, ''), coalesce(m.state, ''), coalesce(m.fingerprint, ''),
       coalesce(m.caller = $3, false)
  from submitter s
  left join submitter_lease l on l.submitter = s.submitter
  left join managed_tx m on m.submitter = s.submitter and m.request_id = $2
 where s.submitter = $1`

// countQueued counts no further than the bound.
const countQueued = `
select count(*)
  from (select from managed_tx where submitter = $1 and state = 'QUEUED' limit $2) as queued`

// Create stores the intent as QUEUED, or finds what is stored under its
// requestId: begin, insert, commit, read, in one round trip. What is stored
// answers first, whatever would be refused now. queueBound is how many intents
// may wait for one submitter, or nearly: see bounds.
//
// The error wraps [ErrUnknownSubmitter] (not registered, or not the caller's to
// use), [ErrRequestConflict], [ErrProtected], [ErrSuspended] or [ErrQueueFull].
func (s *Store) Create(ctx context.Context, in Intent, queueBound int) (Accepted, error) {
	var found foundIntent
	look := 0 // how far the queue is walked
	if s.bounds.unseen(in.Submitter) {
		look = queueBound
	}
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(insertIntent, in.TxID, in.Submitter, in.RequestID, in.Caller, in.Payload, in.Fingerprint[:], look, in.Handler)
	b.Queue("commit")
	b.Queue(findIntent, in.Submitter, in.RequestID, in.Caller).QueryRow(func(row pgx.Row) error {
		return row.Scan(&found.status, &found.allowed, &found.ours, &found.protected, &found.token, &found.txID, &found.state, &found.fingerprint, &found.own)
	})
	if look > 0 {
		b.Queue(countQueued, in.Submitter, queueBound).QueryRow(func(row pgx.Row) error { return row.Scan(&found.queued) })
	}
	err := s.send(ctx, b)
	if err == nil && look > 0 {
		s.bounds.saw(in.Submitter, queueBound-found.queued)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return Accepted{}, fmt.Errorf("%s: %w", in.Submitter, ErrUnknownSubmitter)
	}
	if err != nil {
		return Accepted{}, fmt.Errorf("store intent %s of %s: %w", in.RequestID, in.Submitter, err)
	}
	if !found.ours {
		if err := s.disown(ctx); err != nil {
			return Accepted{}, err
		}
	}
	return found.answer(in)
}

type foundIntent struct {
	status        string
	allowed, ours bool
	protected     bool
	token         int64
	txID, state   string
	fingerprint   []byte
	own           bool // it is this caller's
	queued        int
}

func (f foundIntent) answer(in Intent) (Accepted, error) {
	switch {
	case !f.allowed:
		return Accepted{}, ErrUnknownSubmitter
	case f.txID == "" && (f.protected || !f.ours):
		return Accepted{}, ErrProtected
	case f.txID == "" && f.status != "ACTIVE":
		return Accepted{}, ErrSuspended
	case f.txID == "":
		return Accepted{}, ErrQueueFull
	case !f.own, string(f.fingerprint) != string(in.Fingerprint[:]): // another caller's id is never told
		return Accepted{}, ErrRequestConflict
	}
	return Accepted{TxID: f.txID, New: f.txID == in.TxID, Queued: nonce.State(f.state) == nonce.Queued, Token: f.token}, nil
}
