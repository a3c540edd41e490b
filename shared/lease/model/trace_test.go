package model

import "fmt"

// op is the action of a step.
type op uint8

const (
	opCommit op = iota
	opCreateReads
	opCreateSkips
	opCreateNames
	opCreateBurnt
	opFinal
	opTime
	opCancel
	opCrash
	opPause
	opRenew
	opSnapshot
	opLockAndRead
	opTake
	opFindHeld
	opMark
	opMarkApart
	opLoad
	opFenceHolds
	opFenced
	opSend
	opConfirm
	opMoved
	opTakenForFenced
	opNoMark
	opAgain
	opRelease
	opForceRelease
	opReadAfter
	opReadToken
	opNames
	opBurnt
	opMerges
	opFailed503
	opFailed2xx
)

// step is one step of a run, with the fields that a trace prints.
type step struct {
	op               op
	who              uint8 // the create or the invocation
	job              task  // the task that was delivered or enqueued
	token            uint8
	queued           uint8
	flight           flight
	phase            phase
	delivered, twice bool // the step began with a delivery of job
	answers, dies    bool // it ended with the invocation's 2xx, or its death
}

func (e step) of(o op) step {
	e.op = o
	return e
}

// seen adds what c has just read.
func (e step) seen(c *call) step {
	e.queued, e.flight = c.queued, c.flight
	return e
}

func (t task) String() string {
	switch t.kind {
	case wake:
		return fmt.Sprintf("delayed task (token %d, renewal %d)", t.token, t.renewal)
	case poll:
		return "poll"
	}
	return fmt.Sprintf("h-%d", t.token)
}

func (f flight) String() string {
	return [...]string{"nothing in flight", "one in flight", "one in flight, final"}[f]
}

func (p phase) String() string {
	return [...]string{"live", "expired", "takeable"}[p]
}

// String describes the step: C are creates, I invocations.
func (e step) String() string {
	text := fmt.Sprintf("I%d %s", e.who+1, e.act())
	switch e.op {
	case opCommit, opCreateReads, opCreateSkips, opCreateNames, opCreateBurnt:
		return fmt.Sprintf("C%d %s", e.who+1, e.act())
	case opFinal, opTime, opCancel:
		return e.act()
	}
	if e.delivered {
		again := ""
		if e.twice {
			again = ", and will be once more"
		}
		text = fmt.Sprintf("%s is delivered%s; %s", e.job, again, text)
	}
	switch {
	case e.answers:
		text += "; answers 2xx"
	case e.dies:
		text += "; dies before it answers"
	}
	return text
}

// act describes the step without its subject.
func (e step) act() string {
	switch e.op {
	case opCommit:
		return "commits its intent"
	case opCreateReads, opReadToken:
		return fmt.Sprintf("reads token %d", e.token)
	case opCreateNames, opNames:
		return fmt.Sprintf("makes %s", e.job)
	case opCreateBurnt, opBurnt:
		return fmt.Sprintf("would make %s: ALREADY_EXISTS", e.job)
	case opMerges:
		return "makes a poll, merged with the one that waits"
	case opFinal:
		return "the chain makes the one in flight final"
	case opTime:
		return [...]string{"", "the dead holder's lease expires", "the skew allowance has passed too"}[e.phase]
	case opCancel:
		return "the head of the queue is cancelled"
	case opSnapshot, opLockAndRead, opLoad, opReadAfter:
		return e.reading()
	case opTake, opAgain, opForceRelease:
		return fmt.Sprintf(acts[e.op], e.token)
	}
	return acts[e.op]
}

// reading describes a step that reads the queue.
func (e step) reading() string {
	what := map[op]string{opSnapshot: "takes its snapshot and waits for the row lock", opLockAndRead: "locks the row and reads, uncommitted", opLoad: "loads", opReadAfter: "reads the queue again"}[e.op]
	return fmt.Sprintf("%s: %d queued, %s", what, e.queued, e.flight)
}

var acts = map[op]string{
	opCreateSkips:    "sees that the queue will be read again, and makes no task",
	opCrash:          "dies; its task will come again",
	opPause:          "pauses until its lease has expired",
	opRenew:          "renews",
	opTake:           "acquires the lease, token %d",
	opFindHeld:       "finds the lease held",
	opMark:           "finds the lease held and sets the mark",
	opMarkApart:      "sets the mark if the token is the one it saw",
	opFenceHolds:     "finds that the fence holds",
	opFenced:         "is FENCED",
	opSend:           "allocates and sends the head",
	opConfirm:        "confirms and frees the nonce",
	opMoved:          "finds the row moved",
	opTakenForFenced: "finds the row moved and treats it as FENCED",
	opNoMark:         "finds no mark",
	opAgain:          "finds the mark and iterates again, token %d",
	opRelease:        "releases",
	opForceRelease:   "releases although the mark is set, token %d",
	opFailed503:      "cannot make a task: 503, its own will come again",
	opFailed2xx:      "cannot make a task and answers 2xx",
}

// describe formats a state that violates the promise.
func (s state) describe() string {
	holder := "released"
	switch o := s.lease.owner; o {
	case nobody:
	case gone:
		holder = "held by a dead invocation"
	default:
		holder = fmt.Sprintf("held by I%d", o)
	}
	mark := "no mark"
	if s.lease.mark {
		mark = "marked"
	}
	return fmt.Sprintf("(%d queued, %s; lease %s, token %d, %s, %s)", s.queued(), s.flight, holder, s.lease.token, s.lease.phase, mark)
}
