package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Intent is a caller's request, carried out once.
type Intent struct {
	TxID        string // a new UUID
	Submitter   txmanager.Submitter
	RequestID   string     // the caller's, unique per submitter; compared byte for byte
	Caller      string     // who posts it
	Names       []string   // by what the submitter's callers may name who posts it, [AnyCaller] among them where that stands for it; nil: by Caller alone. It is stored under the first that they name
	Payload     []byte     // canonical JSON
	Handler     string     // makes the transaction out of the payload; "": the payload is the transaction
	Fingerprint [32]byte   // of the payload, and of ValidUntil: see [txmanager.FingerprintUntil]
	ValidUntil  *time.Time // to the microsecond: from then on it gets no nonce; nil: that never ends
	Trace       []byte     // a [telemetry.Origin]; nil: not traced

	mac intentMAC // made by [Store.Create]

	// Refused is why the deployment refuses the intent; nil if it accepts it. An intent that
	// is already stored under the requestId is still returned.
	Refused error
}

// StoredIntent is the stored state of an intent.
type StoredIntent struct {
	TxID   string
	New    bool  // this call stored it
	Queued bool  // it waits for its nonce, and the caller must enqueue an advance: no invocation is known to query the queue
	Token  int64 // in force after the commit; 0 before the first lease session
}

// Errors of [Store.Create]. After each, this attempt has stored nothing.
var (
	ErrRequestConflict = errors.New("the requestId is taken by another payload, or by another caller")
	ErrProtected       = errors.New("the submitter is in PROTECT")
	ErrSuspended       = errors.New("the submitter is suspended")
	ErrRetired         = errors.New("the submitter is retired")
	ErrQueueFull       = errors.New("the submitter's queue is full")
	ErrHandlerBarred   = errors.New("the submitter does not take transactions of this handler")
	ErrPast            = errors.New("the validUntil of the intent has passed")
	ErrRecorded        = errors.New("a release recorded that the request was carried out on the chain")
	ErrMoved           = errors.New("the submitter was in PROTECT, suspended or full a moment ago, and is not any more")
)

// mayPost is true of s if it now accepts an intent from i's caller, and from i's handler if i
// names one.
const mayPost = `s.status = 'ACTIVE' and (select is_accepted_database()) and ` + mayUse + `
   and not exists (select from protect_incident p where p.submitter = s.submitter and p.closed_at is null)`

const (
	mayUse    = `s.callers && i.names::text[] and ` + mayHandle
	mayHandle = `(i.handler = '' or ('` + HandlerCaller + `' || i.handler) = any(s.callers))`

	// storedCaller is the first of i's names that s lists. If only "*" lets the caller post,
	// it is the caller's own name.
	storedCaller = `coalesce((select n.name from unnest(i.names::text[]) with ordinality as n (name, place)
         where n.name = any(s.callers) and n.name <> '*' order by n.place limit 1), i.caller)`
)

// hasPolicy is true of s if a policy limits it.
const hasPolicy = `exists (select from submitter_policy y where y.submitter = s.submitter and y.limited)`

// insertIntents locks no row that another session needs: creates never wait for each other or
// for a running advance. Intents of submitters with a policy are inserted by [insertLimited]. An
// intent that must be held beside a foreign transaction is stored only if $1 is true, that is,
// after [lockHolds].
var insertIntents = `
insert into managed_tx (tx_id, submitter, request_id, caller, handler, fingerprint, trace, fencing_token, held, held_for, last_error, mac, mac_key, valid_until)
select i.tx_id, s.submitter, i.request_id, ` + storedCaller + `, nullif(i.handler, ''), i.fingerprint, i.trace,
       (select fencing_token from submitter_lease where submitter = s.submitter), ` + heldColumns + `, ` + storedMAC + `, i.valid_until
  from ` + RecordSet(intentColumns, 1, "i") + `
  join submitter s on s.submitter = i.submitter
 cross join ` + holdCause + `
 where ` + mayPost + ` and not ` + hasPolicy + `
   and (f.held_for is null or $1)
   and (i.valid_until is null or i.valid_until > clock_timestamp())
 order by i.place
    on conflict (submitter, request_id) do nothing`

// insertPayloads keeps the payloads of the intents that were new. It reads those that are stored, since
// "on conflict" would log a second record for each row. A subquery keeps its index also in an empty partition.
const insertPayloads = `
insert into tx_document (tx_id, name, body)
select i.tx_id, 'payload', i.payload::json
  from unnest($1::uuid[], $2::text[]) as i (tx_id, payload)
 where exists (select from managed_tx m where m.tx_id = i.tx_id)
   and (select d.tx_id from tx_document d where d.tx_id = i.tx_id and d.name = 'payload') is null`

// findIntents returns the stored rows. It reads the fencing token in a statement after the
// commit: an earlier token may name a task that is used up. It also reports whether an
// invocation will query the queue after that commit. That is the holder of an unexpired lease,
// or the invocation that frees the window; see recheckQueue. An intent whose submitter is not
// registered has no row.
//
// A recyclable nonce is room in a full window, and no invocation will free it.
//
// It reads the first of the request's rows from the submitter on, and compares the submitter
// afterwards. So only the right key of the index can answer it.
var findIntents = `
select i.place, s.status, s.callers && i.names, '*' = any(s.callers), (select is_accepted_database()),
       exists (select from protect_incident p where p.submitter = s.submitter and p.closed_at is null),
       coalesce(l.fencing_token, 0), coalesce(m.tx_id::text, ''), coalesce(m.state, ''), coalesce(m.fingerprint, ''),
       coalesce(` + ownedOf("m", "i.names") + `, false),
       coalesce(l.owner_node <> '' and l.expires_at > clock_timestamp(), false)
         or coalesce(c.next_nonce - c.in_flight_nonce >= s.max_in_flight, false) and not ` + recyclable + `,
       (select epoch from database_identity), ` + mayHandle + `, ` + hasPolicy + `,
       coalesce(l.name_epoch, ''), m.recorded_nonce is not null and m.caller = '', coalesce(m.tx_hash, ''), coalesce(m.held, false), clock_timestamp()
  from (select t.submitter, t.request_id, t.handler, t.place, t.names::text[] as names
          from unnest($1::text[], $2::text[], $3::text[], $4::text[]) with ordinality as t (names, submitter, request_id, handler, place)) as i
  join submitter s on s.submitter = i.submitter
  left join submitter_lease l on l.submitter = s.submitter
  left join submitter_nonce_cursor c on c.submitter = s.submitter
  left join lateral (
       select submitter, tx_id, state, fingerprint, caller, recorded_nonce, tx_hash, queued and held as held
         from managed_tx
        where request_id = i.request_id and submitter >= s.submitter
        order by submitter
        limit 1) as m on m.submitter = s.submitter`

// Created is the result of one intent of a batch.
type Created struct {
	StoredIntent
	Err error // as [Store.Create] returns it; nil: accepted, or known
}

// Create stores the intent as QUEUED, or returns the one that is stored under its requestId. A
// stored intent is returned even if a new one would be refused. queueBound is the approximate
// limit of intents that may wait for one submitter: see [queueRooms].
//
// An intent without a trace gets that of ctx, if that one is recorded.
//
// The error wraps [ErrUnknownSubmitter] (not registered, or not the caller's to use),
// [ErrAnyCaller], [ErrRequestConflict], [ErrHandlerBarred], [ErrPast], [ErrProtected],
// [ErrRetired], [ErrSuspended], [ErrQueueFull] or [ErrMoved]. Otherwise it is a [PolicyError] or the
// intent's Refused.
func (s *Store) Create(ctx context.Context, in Intent, queueBound int) (StoredIntent, error) {
	if in.Trace == nil {
		in.Trace = telemetry.Origin(ctx)
	}
	if err := s.mark(ctx, &in); err != nil {
		return StoredIntent{}, fmt.Errorf("store intent %s of %s: %w", in.RequestID, in.Submitter, err)
	}
	got, err := s.creates.Finish(ctx, pendingCreate{in, queueBound}) // of a round trip that may store it: the caller enqueues the task
	return got.StoredIntent, results.Wrap(cmp.Or(err, got.Err), "store intent %s of %s", in.RequestID, in.Submitter)
}

// CreateAll is [Store.Create] for many intents: begin, insert, commit, read, in one round trip
// and one commit. If the database refuses the batch because of one intent, each intent gets
// its own round trip. Results are in order. One refused intent keeps no other from being
// stored. An error means that the outcome of every intent is unknown.
func (s *Store) CreateAll(ctx context.Context, all []Intent, queueBound int) ([]Created, error) {
	all = slices.Clone(all)
	for i := range all {
		if err := s.mark(ctx, &all[i]); err != nil {
			return nil, err
		}
	}
	results, err := s.createAll(ctx, all, queueBound, nil, false)
	if err == nil || !isRowOrLockError(err) {
		return results, err
	}
	return s.createSingly(ctx, all, queueBound, err)
}

// creation is one attempt to store intents.
type creation struct {
	records []intentRecord
	found   []foundIntent // after the commit, in the same order
	shares  []*queueShare // one for each submitter

	queueBound int
	within     *time.Duration // limits a lock wait; nil: the session's own limit does
	beside     bool           // it may store intents that are held beside a foreign transaction
}

// createAll makes one attempt: see [creation].
func (s *Store) createAll(ctx context.Context, all []Intent, queueBound int, within *time.Duration, beside bool) ([]Created, error) {
	c := s.newCreation(all, queueBound)
	c.within, c.beside = within, beside
	if err := s.sendCreation(ctx, c); err != nil {
		for _, q := range c.shares {
			q.memory.expire()
		}
		return nil, err
	}
	return s.answerAll(ctx, all, c)
}

// sendCreation stores the intents, finds them and measures the queues, in one round trip.
func (s *Store) sendCreation(ctx context.Context, c creation) error {
	b := new(pgx.Batch)
	if err := s.queueInserts(b, c); err != nil {
		return err
	}
	b.Queue(findIntents, each(c.records, func(r *intentRecord) string { return r.names }), submittersOf(c.records),
		each(c.records, func(r *intentRecord) string { return r.RequestID }), each(c.records, func(r *intentRecord) string { return r.Handler }),
	).Query(func(rows pgx.Rows) error { return scanFound(rows, c.found) })
	queueMeasures(b, c.shares, c.queueBound)
	return s.send(ctx, b)
}

// queueInserts adds the transaction that stores the intents which got a place. Without one it adds
// nothing.
func (s *Store) queueInserts(b *pgx.Batch, c creation) error {
	placed := c.placed()
	if len(placed) == 0 {
		return nil
	}
	ids := each(placed, func(r *intentRecord) string { return r.TxID })
	b.Queue("begin")
	if c.within != nil {
		b.Queue(`select set_config('lock_timeout', $1, true)`, strconv.FormatInt(c.within.Milliseconds(), 10))
	}
	if c.beside {
		b.Queue(lockHolds, submittersOf(placed))
	}
	b.Queue(insertIntents, RecordArrays([]any{c.beside}, intentColumns, placed)...)
	if err := s.queueLimited(b, c); err != nil {
		return err
	}
	if c.beside {
		b.Queue(claimHolds, ids, each(placed, func(r *intentRecord) []byte { return r.digest }))
	}
	b.Queue(insertPayloads, ids, each(placed, func(r *intentRecord) string { return string(r.Payload) }))
	b.Queue("commit")
	return nil
}

func submittersOf(records []intentRecord) []string {
	return each(records, func(r *intentRecord) string { return string(r.Submitter) })
}

// placed are the records that may be stored.
func (c creation) placed() []intentRecord {
	return slices.DeleteFunc(slices.Clone(c.records), func(r intentRecord) bool { return !r.placed })
}

// answerAll turns the found rows into results. It posts an intent again if its submitter was
// cached as one without a policy and has one. It also does so if nothing refuses the intent
// and it was not stored: it may have to be held.
func (s *Store) answerAll(ctx context.Context, all []Intent, c creation) ([]Created, error) {
	results := make([]Created, len(all))
	var again []Intent
	var places []int
	for i, in := range all {
		c.settlePlace(i)
		f := c.found[i]
		results[i].StoredIntent, results[i].Err = f.answer(in)
		s.noteFound(in, f)
		if (f.limited && !f.evaluated && c.records[i].placed || !c.beside) && errors.Is(results[i].Err, ErrMoved) {
			again, places = append(again, in), append(places, i)
		}
	}
	if slices.ContainsFunc(c.found, func(f foundIntent) bool { return f.registered && !f.ours }) {
		if err := s.ProtectRestored(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.proceedRepeats(ctx, all, c.found, results); err != nil {
		return nil, err
	}
	if len(again) == 0 {
		return results, nil
	}
	second, err := s.createAll(ctx, again, c.queueBound, c.within, true)
	for i := range second {
		results[places[i]] = second[i]
	}
	return results, err
}

// settlePlace notes whether the queue was full for the intent: it got no place, and no measurement shows
// that there is room now. It returns the place of one that was stored before.
func (c creation) settlePlace(i int) {
	r, f := &c.records[i], &c.found[i]
	f.full = r.share != nil && !r.placed && (r.share.full || !r.share.measures)
	if r.placed && f.txID != r.TxID {
		r.share.memory.giveBack(r.share)
	}
}

// noteFound caches what the row shows about the intent's submitter.
func (s *Store) noteFound(in Intent, f foundIntent) {
	if f.registered {
		s.epoch.note(thisDatabase{}, f.epoch)
		s.names.note(in.Submitter, f.nameEpoch)
		s.unlimited.note(in.Submitter, !f.limited)
	}
	s.usable.note(pairOf(namesOf(in.Caller, in.Names), in.Submitter), f.registered && f.allowed)
}

// intentRecord is an intent with the columns that are made from more than one of its fields.
type intentRecord struct {
	Intent
	names  string // as [arrayText] writes them
	digest []byte
	share  *queueShare // of its submitter's queue; nil: the deployment refuses it
	placed bool        // it may be stored
}

// intentColumns are what an intent gives to [insertIntents].
var intentColumns = []RecordColumn[intentRecord]{
	RecordValue("tx_id", "uuid", func(r *intentRecord) string { return r.TxID }),
	RecordValue("caller", "text", func(r *intentRecord) string { return r.Caller }),
	RecordValue("submitter", "text", func(r *intentRecord) string { return string(r.Submitter) }),
	RecordValue("request_id", "text", func(r *intentRecord) string { return r.RequestID }),
	RecordValue("handler", "text", func(r *intentRecord) string { return r.Handler }),
	RecordValue("fingerprint", "bytea", func(r *intentRecord) []byte { return r.Fingerprint[:] }),
	RecordValue("trace", "bytea", func(r *intentRecord) []byte { return r.Trace }),
	RecordValue("digest", "bytea", func(r *intentRecord) []byte { return r.digest }),
	RecordValue("names", "text", func(r *intentRecord) string { return r.names }),
	RecordValue("macs", "bytea", func(r *intentRecord) []byte { return r.mac.sums }),
	RecordValue("mac_key", "text", func(r *intentRecord) string { return r.mac.key }),
	RecordValue("valid_until", "timestamptz", func(r *intentRecord) *time.Time { return micros(r.ValidUntil) }),
}

// newCreation makes the records, and gives places in the queues to the first of each submitter.
func (s *Store) newCreation(all []Intent, queueBound int) creation {
	c := creation{records: make([]intentRecord, len(all)), found: make([]foundIntent, len(all)), queueBound: queueBound}
	shares := make(map[txmanager.Submitter]*queueShare)
	for i, in := range all {
		r := &c.records[i]
		*r = intentRecord{Intent: in, names: arrayText(namesOf(in.Caller, in.Names)), digest: callDigest(in)}
		if in.Refused != nil {
			continue
		}
		if r.share = shares[in.Submitter]; r.share == nil {
			r.share = &queueShare{submitter: in.Submitter, memory: s.bounds.of(in.Submitter, queueBound)}
			shares[in.Submitter] = r.share
			c.shares = append(c.shares, r.share)
		}
		r.share.wanted++
	}
	for _, q := range c.shares {
		q.memory.take(q, queueBound)
	}
	given := make(map[*queueShare]int)
	for i := range c.records {
		if q := c.records[i].share; q != nil && given[q] < q.places {
			given[q]++
			c.records[i].placed = true
		}
	}
	return c
}

// foundIntent is the stored state of an intent after the commit.
type foundIntent struct {
	registered    bool
	status        string
	allowed, ours bool
	anyone        bool // the submitter's callers have "*"
	protected     bool
	token         int64
	txID, state   string
	fingerprint   []byte
	own           bool // it is this caller's
	served        bool // an invocation will query the queue after the commit
	epoch         string
	full          bool // the queue is at its bound
	handlerMay    bool // its handler, if it names one, is the submitter's too
	limited       bool // the submitter has a policy
	held          bool // it is in the queue, and no nonce is given to it
	evaluated     bool // it was held to a policy
	refused       *PolicyError
	nameEpoch     string
	recorded      bool   // a release recorded it, for every caller that may post for the submitter
	txHash        string // last signed, or of the foreign transaction that it was
	now           time.Time
}

// RequestRecordedError is an [ErrRecorded] with the stored state.
type RequestRecordedError struct {
	TxID   string
	TxHash string // "": the node did not tell of the transaction
}

// Error names the transaction.
func (e RequestRecordedError) Error() string {
	return fmt.Sprintf("%v: transaction %s, hash %s", ErrRecorded, e.TxID, e.TxHash)
}

// Unwrap is [ErrRecorded].
func (e RequestRecordedError) Unwrap() error { return ErrRecorded }

func scanFound(rows pgx.Rows, found []foundIntent) error {
	for rows.Next() {
		f := foundIntent{registered: true}
		var place int
		if err := rows.Scan(&place, &f.status, &f.allowed, &f.anyone, &f.ours, &f.protected, &f.token, &f.txID, &f.state, &f.fingerprint, &f.own, &f.served, &f.epoch, &f.handlerMay, &f.limited,
			&f.nameEpoch, &f.recorded, &f.txHash, &f.held, &f.now); err != nil {
			return err
		}
		f.evaluated, f.refused = found[place-1].evaluated, found[place-1].refused
		found[place-1] = f
	}
	return rows.Err()
}

func (f foundIntent) answer(in Intent) (StoredIntent, error) {
	switch {
	case !f.registered:
		return StoredIntent{}, fmt.Errorf("%s: %w", in.Submitter, ErrUnknownSubmitter)
	case !f.allowed && !f.own && f.anyone:
		return StoredIntent{}, ErrAnyCaller
	case !f.allowed && !f.own:
		return StoredIntent{}, ErrUnknownSubmitter
	case f.txID == "":
		return StoredIntent{}, f.refusal(in)
	case f.recorded:
		return StoredIntent{}, RequestRecordedError{TxID: f.txID, TxHash: f.txHash}
	case !f.own, string(f.fingerprint) != string(in.Fingerprint[:]): // another caller's id is never told
		return StoredIntent{}, ErrRequestConflict
	}
	isNew := f.txID == in.TxID
	return StoredIntent{TxID: f.txID, New: isNew, Queued: txmanager.State(f.state) == txmanager.Queued && !f.held && !(isNew && f.served), Token: f.token}, nil
}

// refusal is why the intent was not stored, although the caller may know of its submitter.
func (f foundIntent) refusal(in Intent) error {
	switch {
	case !f.allowed:
		return ErrAnyCaller
	case !f.handlerMay:
		return ErrHandlerBarred
	case f.status == statusRetired:
		return ErrRetired
	case f.protected || !f.ours:
		return ErrProtected
	case f.status != "ACTIVE":
		return ErrSuspended
	case in.Refused != nil:
		return in.Refused
	case in.ValidUntil != nil && !in.ValidUntil.After(f.now):
		return ErrPast
	case f.refused != nil:
		return *f.refused
	case f.full:
		return ErrQueueFull
	}
	return ErrMoved // what refused the insert was over when it was asked why
}
