package model

import (
	"cmp"
	"math/bits"
	"slices"
)

const (
	maxCreates     = 3
	maxInvocations = 3
	maxRenewals    = 2
	maxToken       = 30 // one bit of a names mask for each
)

// Owners of the lease: none, invocation i as i+1, or one that has ended without releasing it.
const (
	nobody uint8 = 0
	gone   uint8 = maxInvocations + 1
)

// phase is the database's clock relative to the lease's expires_at.
type phase uint8

const (
	live     phase = iota // before expires_at
	expired               // after it, within the skew allowance: only its owner can take it
	takeable              // after the allowance: any invocation can take it
)

// lease is the submitter's row. token and renewal together stand for expires_at, which changes with
// either of them.
type lease struct {
	owner   uint8
	phase   phase
	token   uint8
	renewal uint8
	mark    bool
	locked  uint8 // the invocation that keeps the row locked between two steps, encoded as owner
}

// flight is the state of the one nonce in flight.
type flight uint8

const (
	none  flight = iota
	sent         // broadcast, not final on the chain
	final        // final on the chain, not yet recorded
)

// kind is what a task asks for.
type kind uint8

const (
	noTask  kind = iota
	advance      // h-token
	wake         // the delayed advance of an invocation that found the lease held
	poll         // confirm what is in flight
)

// task is a Cloud Tasks task. Its fields are its name.
type task struct {
	kind    kind
	token   uint8
	renewal uint8
}

// names holds the tasks of one kind by token: those that were ever enqueued, and those that wait
// for delivery. A name cannot be used again.
type names struct {
	made, waiting uint32
}

func (n *names) make(token uint8) (isNew bool) {
	isNew = n.made&(1<<token) == 0
	if isNew {
		n.made |= 1 << token
		n.waiting |= 1 << token
	}
	return isNew
}

// creatorPC counts the steps that a create has done. With TokenAfterCommit they are: commit, read
// the token, enqueue the task.
type creatorPC uint8

const (
	createDone creatorPC = 3
	unread     uint8     = 255 // the token of a create that has not read it yet
)

type creator struct {
	pc    creatorPC
	token uint8
}

// pc is the next step of an invocation.
type pc uint8

const (
	idle pc = iota
	arrive
	waitLock   // has its snapshot, waits for the row lock
	commitRead // has locked the row and read the queue, has not committed
	markApart
	makeDelayed
	load
	work
	write // has checked the fence, has not written
	release
	letGo     // has read the mark, has not released
	readAfter // has released, has not read the queue again
	readToken
	nameAdvance
	namePoll
)

// call is one invocation.
type call struct {
	pc   pc
	job  task // the task that started it
	copy bool // job was delivered twice and this is the second: it is not delivered again
	// As last read, updated by its own writes.
	queued, head uint8
	flight       flight
	// Its acts since its delivery.
	sent, confirmed bool
	// The tasks that it still has to enqueue.
	owesAdvance, owesPoll bool
	freed                 bool // it has released its lease
	// The lease that it found held, or the token that names its advance.
	token, renewal uint8
}

// state is one state of the model. It is comparable and holds no pointer.
type state struct {
	lease           lease
	committed, head uint8 // inserted intents; intents that have left the queue
	flight          flight
	creators        [maxCreates]creator
	calls           [maxInvocations]call
	advances        names
	wakes           [maxRenewals + 1]names // by renewal
	polls           uint8                  // number of waiting ones
	left            Budget
	unsafe          bool // a write with a superseded token was accepted
	// Only in keys: waiting tasks with names that can no longer be used.
	oldAdvances, oldWakes uint8
}

func (s *state) queued() uint8 { return s.committed - s.head }

// unfinished reports whether an accepted intent is not done.
func (s *state) unfinished() bool { return s.queued() > 0 || s.flight != none }

// putBack puts a task back for another delivery.
func (s *state) putBack(t task) {
	switch t.kind {
	case advance:
		s.advances.waiting |= 1 << t.token
	case wake:
		s.wakes[t.renewal].waiting |= 1 << t.token
	case poll:
		s.polls++
	}
}

// remove removes a waiting task.
func (s *state) remove(t task) {
	switch t.kind {
	case advance:
		s.advances.waiting &^= 1 << t.token
	case wake:
		s.wakes[t.renewal].waiting &^= 1 << t.token
	case poll:
		s.polls--
	}
}

// canonical returns the form in which states are compared: creates and invocations have no
// identity, and tokens count from the oldest one that can still be used.
func (s state) canonical() state {
	s.renumber(s.oldest())
	slices.SortFunc(s.creators[:], func(a, b creator) int {
		return cmp.Or(cmp.Compare(a.pc, b.pc), cmp.Compare(a.token, b.token))
	})
	s.sortCalls()
	return s
}

// oldest returns the lowest token that can still name a task.
func (s *state) oldest() uint8 {
	low := s.lease.token
	for i := range s.creators {
		if c := &s.creators[i]; c.pc != createDone {
			low = min(low, c.token)
		}
	}
	for i := range s.calls {
		switch c := &s.calls[i]; c.pc {
		case markApart, makeDelayed, nameAdvance, readAfter:
			low = min(low, c.token)
		}
	}
	return low
}

// renumber makes low token 1. Of lower tokens it keeps only the number of waiting tasks.
func (s *state) renumber(low uint8) {
	move := func(t uint8) uint8 { return max(t+1, low) - low }
	s.lease.token = move(s.lease.token)
	s.oldAdvances = s.advances.renumber(low)
	for r := range s.wakes {
		s.oldWakes += s.wakes[r].renumber(low)
	}
	for i := range s.creators {
		if c := &s.creators[i]; c.token != unread {
			c.token = move(c.token)
		}
	}
	for i := range s.calls {
		c := &s.calls[i]
		c.token, c.job.token = move(c.token), move(c.job.token)
		if c.job.token == 0 {
			c.job.renewal = 0
		}
	}
}

// renumber shifts both sets and returns the number of tasks that wait below low.
func (n *names) renumber(low uint8) uint8 {
	old := bits.OnesCount32(n.waiting & (1<<low - 1))
	n.made, n.waiting = n.made>>low<<1, n.waiting>>low<<1
	return uint8(old)
}

// sortCalls sorts the invocations and keeps the lease's owner.
func (s *state) sortCalls() {
	was := *s
	order := [maxInvocations]uint8{0, 1, 2}
	slices.SortFunc(order[:], func(a, b uint8) int { return cmp.Compare(was.rank(a), was.rank(b)) })
	for to, from := range order {
		s.calls[to] = was.calls[from]
		if was.lease.owner == from+1 {
			s.lease.owner = uint8(to) + 1
		}
		if was.lease.locked == from+1 {
			s.lease.locked = uint8(to) + 1
		}
	}
}

// rank packs invocation i into one number; only equal invocations have equal ranks.
func (s *state) rank(i uint8) (n uint64) {
	c := &s.calls[i]
	for _, f := range [...]uint8{uint8(c.pc), uint8(c.job.kind), c.job.token, c.job.renewal, c.queued, c.head, uint8(c.flight), c.token, c.renewal} {
		n = n<<5 | uint64(f)
	}
	for _, b := range [...]bool{c.copy, c.sent, c.confirmed, c.owesAdvance, c.owesPoll, c.freed, s.lease.owner == i+1, s.lease.locked == i+1} {
		n <<= 1
		if b {
			n |= 1
		}
	}
	return n
}
