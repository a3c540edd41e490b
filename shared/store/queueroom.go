package store

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// queueRooms remembers how much room the queues have, so that few creates measure a queue. A process
// measures a queue when its memory is a second old, or when it has stored half of the room since then.
// That is at least 10 intents, and at most max(10, bound/100). A full queue is not measured again within
// that second, and no insert is tried.
//
// So the bound is approximate. P processes can exceed it by P times max(10, bound/100), and by what
// their round trips under way store. A process that starts while the queue is full, or has dropped its
// memory, can add bound/100. The miscounts of [queueLength] add to that.
//
// A measurement reads the newest intents, and not the whole queue: see [queueLength]. A process reads
// the whole queue at most at 10,000 rows a second.
type queueRooms struct {
	mu   sync.Mutex
	seen map[txmanager.Submitter]*queueRoom
}

const (
	queueRoomTTL   = time.Second
	countTimeOfRow = 100 * time.Microsecond // between two complete counts of a queue, for each of its rows

	minPlaces = 10 // see placesBetween

	// settledAfter is how far behind the newest seq of a queue its rows count as settled: no commit
	// under way adds a row below. It is larger than a batch.
	settledAfter = 2 * maxBatchCreates
)

// placesBetween is how many intents a process may store at most between two measurements.
func placesBetween(bound int) int { return max(minPlaces, bound/100) }

// queueRoom is the memory about one queue.
type queueRoom struct {
	mu      sync.Mutex
	until   time.Time // the memory holds until then, by the monotonic clock
	rows    int       // by the last measurement, and what this process has stored since
	stored  int       // of them since
	base    queueLength
	recount time.Time // the next complete count is due

	generation int // the number of measurements
}

// queueLength is the number of rows of a queue up to seq, at the time when nonce was the cursor's next
// nonce. Rows leave the queue from its head and get the next nonces. So the number at a later time
// follows from the nonce.
//
// Until the next complete count, it is miscounted by the intents that left without a nonce, as by a
// cancel, unless none of its rows is left. It is also miscounted by the nonces that went to
// reservations, and by intents that overtook deferred ones.
type queueLength struct {
	seq, nonce int64
	rows       int
}

// queueMeasure is a row of [measureQueues].
type queueMeasure struct {
	nonce, seq     int64
	added, settled int // rows above the base's seq, and those of them up to seq
	complete       bool
	anyBefore      bool // rows of the base are left
}

// measureQueues reads for each queue the rows above a seq, at most $3. With 0 it reads the whole queue.
const measureQueues = `
select q.place, coalesce(c.next_nonce, 0), s.seq, a.added, a.settled, a.added < $3,
       (select m.seq from managed_tx m where m.submitter = q.submitter and m.queued and not m.held and m.seq <= q.seq order by m.seq desc limit 1) is not null
  from unnest($1::text[], $2::bigint[]) with ordinality as q (submitter, seq, place)
  left join submitter_nonce_cursor c on c.submitter = q.submitter
 cross join lateral (
       select greatest(q.seq, coalesce((select m.seq from managed_tx m
         where m.submitter = q.submitter and m.queued and not m.held order by m.seq desc limit 1), 0) - $4) as seq) as s
 cross join lateral (
       select count(*) as added, count(*) filter (where t.seq <= s.seq) as settled
         from (select m.seq from managed_tx m
                where m.submitter = q.submitter and m.queued and not m.held and m.seq > q.seq order by m.seq limit $3) as t) as a`

// of returns the memory about the queue of s. When there are too many, it drops those of all queues
// that are not known to be full.
func (b *queueRooms) of(s txmanager.Submitter, bound int) *queueRoom {
	b.mu.Lock()
	defer b.mu.Unlock()
	room, ok := b.seen[s]
	if !ok {
		if b.seen == nil {
			b.seen = make(map[txmanager.Submitter]*queueRoom)
		}
		if len(b.seen) >= maxCached {
			maps.DeleteFunc(b.seen, func(_ txmanager.Submitter, r *queueRoom) bool { return !r.isKnownFull(bound) })
		}
		room = new(queueRoom)
		b.seen[s] = room
	}
	return room
}

// queueShare is the part of a batch that is for one queue.
type queueShare struct {
	submitter txmanager.Submitter
	memory    *queueRoom
	wanted    int
	places    int         // how many of the wanted may be stored
	measures  bool        // the batch measures the queue after its commit
	base      queueLength // to measure from
	full      bool        // what got no place is refused

	generation int // of the memory that gave the places
}

// isKnownFull is true if no measurement is due and there is no room.
func (r *queueRoom) isKnownFull(bound int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.until) && r.rows >= bound
}

// take gives the share its places, and decides whether the queue must be measured. Before the first
// measurement, and when the last one is too old, all shares together get at most a hundredth of the
// bound. With a small bound they get none until they have measured.
func (r *queueRoom) take(q *queueShare, bound int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	isFresh := now.Before(r.until)
	if q.full = isFresh && r.rows >= bound; q.full {
		return
	}
	q.generation = r.generation
	q.places = max(0, min(q.wanted, bound-r.rows))
	if !isFresh {
		q.places = max(0, min(q.places, bound/100-r.stored))
	}
	if q.measures = !isFresh || r.stored+q.wanted > r.interval(bound); q.measures {
		q.base = r.base
		if !now.Before(r.recount) {
			q.base, r.recount = queueLength{}, now.Add(queueRoomTTL)
		}
	}
	if q.measures && isFresh {
		r.stored = 0 // one measurement under way is enough
	}
	r.rows += q.places
	r.stored += q.places
}

// interval is after how many stored intents the queue is measured again.
func (r *queueRoom) interval(bound int) int {
	return min(placesBetween(bound), max(minPlaces, (bound-r.rows+r.stored)/2))
}

// giveBack returns one place of the share. After a measurement there is nothing to return.
func (r *queueRoom) giveBack(q *queueShare) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.generation == r.generation {
		r.rows--
		r.stored = max(0, r.stored-1)
	}
}

// expire has the next batch measure the queue: the outcome of this one is unknown.
func (r *queueRoom) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = time.Time{}
}

// note remembers what the batch measured. It reports whether the queue is full.
func (r *queueRoom) note(q *queueShare, m queueMeasure, bound int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := 0
	if m.anyBefore {
		before = max(0, q.base.rows-int(max(0, m.nonce-q.base.nonce)))
	}
	now := time.Now()
	if m.complete {
		r.base = queueLength{seq: m.seq, nonce: m.nonce, rows: before + m.settled}
	}
	if q.base.seq == 0 {
		r.recount = now.Add(max(queueRoomTTL, time.Duration(m.added)*countTimeOfRow))
	}
	r.until = now.Add(queueRoomTTL)
	r.rows, r.stored = before+m.added, 0
	r.generation++
	return r.rows >= bound
}

// queueMeasures adds the measurement of the queues that are due.
func queueMeasures(b *pgx.Batch, shares []*queueShare, bound int) {
	due := slices.DeleteFunc(slices.Clone(shares), func(q *queueShare) bool { return !q.measures })
	if len(due) == 0 {
		return
	}
	var place int
	var m queueMeasure
	b.Queue(measureQueues, each(due, func(q **queueShare) string { return string((*q).submitter) }),
		each(due, func(q **queueShare) int64 { return (*q).base.seq }), 2*bound, settledAfter,
	).Query(results.Each([]any{&place, &m.nonce, &m.seq, &m.added, &m.settled, &m.complete, &m.anyBefore}, func() {
		due[place-1].full = due[place-1].memory.note(due[place-1], m, bound)
	}))
}
