package batches

import "slices"

const (
	maxSubmitters = 3
	maxProcesses  = 2
	maxCreates    = 2
	maxToken      = 14 // one bit of a names mask for each
)

// Owners of a lease and of a row lock: none, process i as i+1, or an invocation that has ended
// without releasing the lease.
const (
	nobody uint8 = 0
	gone   uint8 = maxProcesses + 1
)

// names holds the tasks of one kind by token: those that were ever enqueued, and those that wait for
// delivery. A name cannot be used again.
type names struct{ made, waiting uint16 }

func (n *names) make(token uint8) (isNew bool) {
	isNew = n.made&(1<<token) == 0
	if isNew {
		n.made |= 1 << token
		n.waiting |= 1 << token
	}
	return isNew
}

// task is a Cloud Tasks task: an advance, or the delayed one of an invocation that found the lease
// held.
type task struct {
	wake  bool
	token uint8
}

// createPC counts the steps that a create has done: commit, read the lease, enqueue the task.
type createPC uint8

const createDone createPC = 3

type creator struct {
	pc    createPC
	token uint8
}

// submitter is what the database and the task queue have of one submitter.
type submitter struct {
	owner, token, locked uint8
	mark, expired        bool
	committed, bound     uint8 // inserted intents; those with a nonce
	creators             [maxCreates]creator
	advances, wakes      names
	oldAdvances          uint8 // only in keys: waiting tasks with names that can no longer be used
	oldWakes             uint8
	met                  bool // a fault has met its work
}

// pc is the next step of an invocation.
type pc uint8

const (
	idle pc = iota
	acquire
	load
	write
	inTrip // its call is in the round trip under way
	iterate
	recheck
	nameAdvance
	makeDelayed
)

// call is one invocation: at most one of a process for each submitter.
type call struct {
	pc    pc
	job   task
	copy  bool // job was delivered twice and this is the second: it is not delivered again
	alone bool // its next statement goes alone
	bad   bool // its write is refused
	claim
}

// claim is what an invocation has read, and writes.
type claim struct {
	token   uint8
	next    uint8 // the nonce of the first queued intent
	queued  uint8 // intents to bind
	release bool
}

// kind is the kind of a round trip.
type kind uint8

const (
	noTrip kind = iota
	acquires
	commits
)

// result is what a transaction did with one member.
type result uint8

const (
	pending result = iota
	taken
	held
	wrote
	released
	marked // wrote, and did not release: the mark is set
	fenced
	skipped
)

// member is a call in a round trip.
type member struct {
	in, left bool // left: its caller has gone
	claim
	result result
	seen   uint8 // queued intents that the locking statement read
	stale  bool  // its process froze after it had locked the row
}

// trip is the round trip of a process.
type trip struct {
	kind      kind
	at        uint8 // rows that were locked or skipped
	backward  bool  // locks in the reverse order
	committed bool
	aborted   bool // the server ended its session
	orphan    bool // its process has died
	members   [maxSubmitters]member
}

// process runs invocations.
type process struct {
	frozen bool
	calls  [maxSubmitters]call
	trip   trip
}

// state is one state of the model. It is comparable and holds no pointer.
type state struct {
	submitters           [maxSubmitters]submitter
	processes            [maxProcesses]process
	left                 Budget
	loss, unsafe, harmed bool
}

func (b *submitter) queued() uint8 { return b.committed - b.bound }

// isFree reports whether process i's invocation may take the lease. owner is the encoded process.
func (b *submitter) isFree(owner uint8) bool {
	return b.owner == nobody || b.owner == owner || b.expired
}

// holds reports whether a claim's fence holds.
func (b *submitter) holds(c claim) bool {
	return b.owner != nobody && b.token == c.token && !b.expired
}

// take gives the lease to owner under a new token.
func (b *submitter) take(owner uint8) {
	b.owner, b.token, b.mark, b.expired = owner, b.token+1, false, false
}

// free releases the lease.
func (b *submitter) free() { b.owner, b.expired = nobody, false }

// giveUp releases the lease even if the mark is set, under the next token.
func (b *submitter) giveUp() {
	b.free()
	b.mark = false
	b.token++
}

// commit carries out claim c on submitter k's rows, and notes a violation. The lease is released if
// that is asked for and the mark is not set.
func (s *state) commit(k uint8, c claim) result {
	b := &s.submitters[k]
	s.unsafe = s.unsafe || b.token != c.token
	if c.queued > 0 {
		s.loss = s.loss || c.next != b.bound
		b.bound = max(b.bound, min(c.next+c.queued, b.committed))
	}
	switch {
	case c.release && b.mark:
		return marked
	case c.release:
		b.free()
		return released
	}
	return wrote
}

// tasks are those of t's kind.
func (b *submitter) tasks(t task) *names {
	if t.wake {
		return &b.wakes
	}
	return &b.advances
}

// putBack puts a task back for another delivery.
func (b *submitter) putBack(t task)        { b.tasks(t).waiting |= 1 << t.token }
func (b *submitter) isWaiting(t task) bool { return b.tasks(t).waiting&(1<<t.token) != 0 }
func (b *submitter) remove(t task)         { b.tasks(t).waiting &^= 1 << t.token }

// end ends process i's invocation for submitter k. A lease that it did not release stays with a dead
// owner.
func (s *state) end(i, k uint8) {
	b := &s.submitters[k]
	if b.owner == i+1 && s.processes[i].calls[k].pc != idle {
		b.owner = gone
	}
	s.processes[i].calls[k] = call{}
}

// retry ends an invocation whose task is delivered again.
func (s *state) retry(i, k uint8) {
	if c := &s.processes[i].calls[k]; c.pc != idle && !c.copy {
		s.submitters[k].putBack(c.job)
	}
	s.end(i, k)
}

// fail releases the lease after a failure, under the next token, and ends the invocation. Its task is
// delivered again.
func (s *state) fail(i, k uint8) {
	b := &s.submitters[k]
	b.met = true
	if b.owner == i+1 {
		b.giveUp()
	}
	s.retry(i, k)
}

// unlock releases the row locks of process i.
func (s *state) unlock(i uint8) {
	for k := range s.submitters {
		if b := &s.submitters[k]; b.locked == i+1 {
			b.locked = nobody
		}
	}
}

// unfinished reports whether an accepted intent is not done; with unmet, of a submitter that no
// fault has met.
func (s *state) unfinished(unmet bool) bool {
	return slices.ContainsFunc(s.submitters[:], func(b submitter) bool { return b.queued() > 0 && !(unmet && b.met) })
}

func (s *state) unbounded() bool {
	return slices.ContainsFunc(s.submitters[:], func(b submitter) bool { return b.token >= maxToken })
}
