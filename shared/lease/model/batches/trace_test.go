package batches

import (
	"fmt"
	"strings"
)

// op is the action of a step.
type op uint8

const (
	opCreate op = iota
	opCreateReads
	opCreateSkips
	opCreateMakes
	opCreateBurnt
	opExpire
	opTake
	opMark
	opLoad
	opWrite
	opFenced
	opFail
	opIterate
	opRecheck
	opMakesAdvance
	opMakesDelayed
	opBurnt
	opBegin
	opFreezeWithin
	opLock
	opCommit
	opAnswer
	opUnanswered
	opAborted
	opRefuse
	opCrash
	opFreeze
	opThaw
	opEndSession
	opLeave
)

// step is one step of a run, with the fields that a trace prints.
type step struct {
	op                 op
	process, submitter uint8
	token, queued      uint8
	release            bool
	kind               kind
	result             result
	members            uint8 // the members of the round trip
	delivered, twice   uint8 // submitters whose jobs were delivered first
	jobs               [maxSubmitters]task
	dies, commits      bool // the process died; the server commits its transaction
}

func (e step) of(o op) step {
	e.op = o
	return e
}

func (e step) seen(queued uint8) step {
	e.queued = queued
	return e
}

// isProgress reports whether the step is no fault.
func (e step) isProgress() bool {
	switch e.op {
	case opFreeze, opFreezeWithin, opLeave, opUnanswered, opRefuse:
		return false
	}
	return !e.dies
}

// isPrompt reports whether the step is no fault, and no wait for a lease or a frozen process.
func (e step) isPrompt() bool {
	switch e.op {
	case opExpire, opThaw, opEndSession:
		return false
	}
	for k := range e.jobs {
		if e.jobs[k].wake {
			return false
		}
	}
	return e.isProgress()
}

var (
	kinds   = [...]string{"", "acquires", "commits"}
	results = [...]string{"waits for the row of %s", "locks %s to take its lease", "finds the lease of %s held", "locks %s, whose fence holds", "", "", "finds %s fenced", "skips %s, which is locked"}
	acts    = map[op]string{
		opCreateSkips: "finds the lease held and makes no task",
		opMark:        "finds the lease of %s held and sets the mark",
		opFenced:      "is FENCED for %s",
		opFail:        "is refused for %s, releases and fails",
		opCommit:      "COMMIT",
		opAnswer:      "gets the answer and reads the queues",
		opUnanswered:  "gets no answer",
		opAborted:     "finds its session ended",
		opCrash:       "dies",
		opFreeze:      "freezes until its leases have expired",
		opThaw:        "continues",
		opEndSession:  "has its session ended by the server",
		opLeave:       "has the caller for %s leave at its deadline",
	}
)

// names lists the submitters of a set.
func namesOf(set uint8) string {
	var all []string
	for k := range maxSubmitters {
		if set&(1<<k) != 0 {
			all = append(all, string('A'+rune(k)))
		}
	}
	return strings.Join(all, ", ")
}

// String describes the step: P and Q are processes; A, B and C submitters.
func (e step) String() string {
	var text strings.Builder
	for k, t := range e.jobs {
		if e.delivered&(1<<k) != 0 {
			again := ""
			if e.twice&(1<<k) != 0 {
				again = " the first time"
			}
			fmt.Fprintf(&text, "%s of %s is delivered%s; ", t, namesOf(1<<k), again)
		}
	}
	switch act := e.act(); {
	case e.op <= opCreateBurnt:
		fmt.Fprintf(&text, "create of %s %s", namesOf(1<<e.submitter), act)
	case e.op == opExpire:
		fmt.Fprintf(&text, "the lease of %s expires", namesOf(1<<e.submitter))
	default:
		fmt.Fprintf(&text, "%c %s", 'P'+rune(e.process), act)
	}
	switch {
	case e.dies && e.op != opCrash:
		text.WriteString("; dies before it answers")
	case e.commits:
		text.WriteString("; its transaction goes on")
	}
	return text.String()
}

func (t task) String() string {
	if t.wake {
		return fmt.Sprintf("delayed task %d", t.token)
	}
	return fmt.Sprintf("advance %d", t.token)
}

// act describes the step without its subject.
func (e step) act() string {
	of := namesOf(1 << e.submitter)
	switch e.op {
	case opCreate:
		return "commits its intent"
	case opCreateReads:
		return fmt.Sprintf("reads token %d", e.token)
	case opCreateMakes, opMakesAdvance:
		return fmt.Sprintf("makes %s of %s", task{token: e.token}, of)
	case opMakesDelayed:
		return fmt.Sprintf("makes %s of %s", task{true, e.token}, of)
	case opCreateBurnt, opBurnt:
		return fmt.Sprintf("would make a task %d of %s: ALREADY_EXISTS", e.token, of)
	case opTake:
		return fmt.Sprintf("acquires the lease of %s, token %d", of, e.token)
	case opIterate:
		return fmt.Sprintf("iterates again for %s, token %d", of, e.token)
	case opLoad:
		return fmt.Sprintf("loads %s: %d queued", of, e.queued)
	case opRecheck:
		return fmt.Sprintf("reads the queue of %s again: %d queued", of, e.queued)
	case opWrite:
		return fmt.Sprintf("commits alone for %s: binds %d, releases %t", of, e.queued, e.release)
	case opBegin:
		return fmt.Sprintf("begins shared %s of %s: "+results[e.result], kinds[e.kind], namesOf(e.members), of)
	case opFreezeWithin:
		return fmt.Sprintf("freezes within %s of %s: "+results[e.result], kinds[e.kind], of, of)
	case opLock:
		return fmt.Sprintf(results[e.result], of)
	case opRefuse:
		if e.submitter == maxSubmitters {
			return "has the transaction refused"
		}
		return fmt.Sprintf("has the transaction refused because of %s", of)
	}
	if strings.Contains(acts[e.op], "%s") {
		return fmt.Sprintf(acts[e.op], of)
	}
	return acts[e.op]
}

// describe formats a state that violates a rule.
func (s state) describe() string {
	var all []string
	for k, b := range s.submitters {
		if b.committed == 0 {
			continue
		}
		holder := [...]string{"released", "held by P", "held by Q", "held by a dead invocation"}[b.owner]
		all = append(all, fmt.Sprintf("%s: %d queued, %d bound, lease %s, token %d, mark %t, expired %t",
			namesOf(1<<k), b.queued(), b.bound, holder, b.token, b.mark, b.expired))
	}
	return strings.Join(all, "; ")
}
