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

// Owners of the lease: nobody, invocation i as i+1, or one that has ended
// without releasing it.
const (
	nobody uint8 = 0
	gone   uint8 = maxInvocations + 1
)

// phase is where the database's clock stands against the lease's expires_at.
type phase uint8

const (
	live     phase = iota // before expires_at
	expired               // after it, within the skew allowance: only its owner may take it
	takeable              // after the allowance: anyone may
)

// lease is the row of the submitter. token and renewal together stand for
// expires_at: it moves whenever one of them does.
type lease struct {
	owner   uint8
	phase   phase
	token   uint8
	renewal uint8
	mark    bool
	locked  uint8 // who keeps the row locked from one step to the next, as owner
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

// task is one Cloud Tasks task; its fields are its name.
type task struct {
	kind    kind
	token   uint8
	renewal uint8
}

// names are the tasks of one kind by token: which were ever made, and which of
// them wait to be delivered. A name once made stays burnt.
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

// creatorPC counts the steps a create has done; with TokenAfterCommit they are
// commit, read the token, make the task.
type creatorPC uint8

const (
	createDone creatorPC = 3
	unread     uint8     = 255 // the token of a create that has not read it yet
)

type creator struct {
	pc    creatorPC
	token uint8
}

// pc is the step an invocation is about to do.
type pc uint8

const (
	idle pc = iota
	arrive
	waitLock   // has its snapshot, waits for the row lock
	commitLook // has locked the row and read the queue, has not committed
	markApart
	makeWake
	load
	work
	write // has looked at the fence, has not written
	release
	letGo     // has looked at the mark, has not released
	lookAfter // has released, has not looked at the queue again
	readToken
	nameAdvance
	namePoll
)

// call is one invocation.
type call struct {
	pc   pc
	job  task // what it was delivered for
	copy bool // job was delivered twice and this is the second: nothing comes again
	// As last read, and kept true by its own writes.
	queued, head uint8
	flight       flight
	// What it did since it was delivered.
	sent, confirmed bool
	// What it has still to enqueue.
	owesAdvance, owesPoll bool
	freed                 bool // it has released its lease
	// The lease it found held, or the token it names an advance by.
	token, renewal uint8
}

// state is one state of the model. It is comparable and holds no pointer.
type state struct {
	lease           lease
	committed, head uint8 // intents inserted; intents that have left the queue
	flight          flight
	creators        [maxCreates]creator
	calls           [maxInvocations]call
	advances        names
	wakes           [maxRenewals + 1]names // by renewal
	polls           uint8                  // how many wait
	left            Budget
	unsafe          bool // a write by a superseded token was accepted
	// Only in keys: tasks that wait under names no one can ask for any more.
	oldAdvances, oldWakes uint8
}

func (s *state) queued() uint8 { return s.committed - s.head }

// unfinished: an accepted intent is not done.
func (s *state) unfinished() bool { return s.queued() > 0 || s.flight != none }

// waits puts a task back for another delivery.
func (s *state) waits(t task) {
	switch t.kind {
	case advance:
		s.advances.waiting |= 1 << t.token
	case wake:
		s.wakes[t.renewal].waiting |= 1 << t.token
	case poll:
		s.polls++
	}
}

// taken takes a waiting task away.
func (s *state) taken(t task) {
	switch t.kind {
	case advance:
		s.advances.waiting &^= 1 << t.token
	case wake:
		s.wakes[t.renewal].waiting &^= 1 << t.token
	case poll:
		s.polls--
	}
}

// canonical is the form under which states count as the same: creates and
// invocations have no identity, and tokens count from the oldest one that can
// still be asked for.
func (s state) canonical() state {
	s.renumber(s.oldest())
	slices.SortFunc(s.creators[:], func(a, b creator) int {
		return cmp.Or(cmp.Compare(a.pc, b.pc), cmp.Compare(a.token, b.token))
	})
	s.sortCalls()
	return s
}

// oldest is the lowest token by which a task may still be named.
func (s *state) oldest() uint8 {
	low := s.lease.token
	for i := range s.creators {
		if c := &s.creators[i]; c.pc != createDone {
			low = min(low, c.token)
		}
	}
	for i := range s.calls {
		switch c := &s.calls[i]; c.pc {
		case markApart, makeWake, nameAdvance, lookAfter:
			low = min(low, c.token)
		}
	}
	return low
}

// renumber makes low token 1 and forgets what lies below it, except how many
// tasks still wait.
func (s *state) renumber(low uint8) {
	move := func(t uint8) uint8 {
		if t < low {
			return 0
		}
		return t - low + 1
	}
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

// renumber shifts both sets and returns how many tasks wait below low.
func (n *names) renumber(low uint8) uint8 {
	old := bits.OnesCount32(n.waiting & (1<<low - 1))
	n.made, n.waiting = n.made>>low<<1, n.waiting>>low<<1
	return uint8(old)
}

// sortCalls orders the invocations and lets the lease follow its owner.
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

// rank packs invocation i into one number; only equal ones have equal ranks.
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
