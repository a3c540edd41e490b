package model

import (
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/shared/modelcheck"
)

// broadcastRules are the rules of a broadcast that is made after its lease was released, with a window
// of one. A false field replaces its rule by a plausible wrong alternative.
type broadcastRules struct {
	// StaysDue: a stored broadcast without a recorded outcome stays due. Otherwise the release counts
	// as the broadcast.
	StaysDue bool
	// LoadsAgain: a refusal is recorded only if the row, loaded again, has the same version and no
	// outcome. Otherwise the row is not loaded again.
	LoadsAgain bool
	// LastVersion: a query acknowledges a broadcast only if the node holds the last version. Otherwise
	// any version counts.
	LastVersion bool
	// OwnTask: the task of an invocation that dies is delivered again, until the poll is enqueued.
	OwnTask bool
}

func allBroadcastRules() broadcastRules { return broadcastRules{true, true, true, true} }

// broadcastStep is where an invocation is.
type broadcastStep int8

const (
	away      broadcastStep = iota
	held                    // it holds the lease and has loaded the row
	claimed                 // it holds the lease and has claimed a repeat of the last version
	unsent                  // it has stored a version and released the lease
	refused                 // no node accepted what it sent after the release
	recording               // it has acquired the lease again
)

// sender is one invocation.
type sender struct {
	at      broadcastStep
	version int8 // what it sends or sent
}

// broadcastState is one state: one nonce, an original (1) and a placeholder (2).
type broadcastState struct {
	senders   [2]sender
	state     int8  // of the row: queued, submitted, tracking, ended
	version   int8  // the last stored; 0: none
	answered  bool  // the outcome of its broadcast is recorded
	assumed   bool  // without StaysDue: it counts as sent
	cancelled bool  // a placeholder is requested
	task      bool  // a task is due
	pool      int8  // the version that the node holds
	reached   uint8 // the versions that a node has held
	mined     int8
	broken    string

	crashes, refusals, cancels int8 // that may still come
}

const (
	rowQueued int8 = iota
	rowSubmitted
	rowTracking
	rowEnded
)

func (s broadcastState) isHeld() bool {
	for _, x := range s.senders {
		if x.at == held || x.at == claimed || x.at == recording {
			return true
		}
	}
	return false
}

func (s *broadcastState) holds(version int8) bool { return s.reached>>version&1 == 1 }

type broadcasts struct{ broadcastRules }

func (p broadcasts) next(s broadcastState, out func(string, broadcastState)) {
	for i := range s.senders {
		p.step(s, i, out)
	}
	if s.cancels > 0 && s.state != rowEnded {
		to := s
		to.cancels, to.cancelled, to.task = to.cancels-1, true, true
		out("a cancel is requested", to)
	}
	if s.pool != 0 && s.mined == 0 {
		to := s
		to.mined = s.pool
		out(fmt.Sprintf("version %d is mined", s.pool), to)
	}
}

func (p broadcasts) step(s broadcastState, i int, out func(string, broadcastState)) {
	x := &s.senders[i]
	if x.at != away && s.crashes > 0 {
		to := s
		to.senders[i], to.crashes, to.task = sender{}, to.crashes-1, to.task || p.OwnTask
		out(fmt.Sprintf("%d dies", i), to)
	}
	switch x.at {
	case away:
		if s.task && !s.isHeld() {
			x.at, s.task = held, false
			out(fmt.Sprintf("%d acquires", i), s)
		}
	case held:
		p.iterate(s, i, out)
	case claimed, unsent:
		p.send(s, i, out)
	case refused:
		if !s.isHeld() {
			x.at = recording
			out(fmt.Sprintf("%d acquires again", i), s)
		}
	case recording:
		p.record(s, i, out)
	}
}

// iterate queries the chain, and stores or claims a version if one is due.
func (p broadcasts) iterate(s broadcastState, i int, out func(string, broadcastState)) {
	x := &s.senders[i]
	switch {
	case s.state != rowQueued && s.mined != 0:
		s.state, *x = rowEnded, sender{}
		out(fmt.Sprintf("%d finds the receipt", i), s)
	case s.state == rowQueued, s.cancelled && s.version == 1:
		s.version++
		s.state, s.answered, s.assumed = rowSubmitted, false, !p.StaysDue
		*x = sender{unsent, s.version}
		out(fmt.Sprintf("%d stores version %d and releases", i, s.version), s)
	case s.state == rowSubmitted && (s.pool == s.version || !p.LastVersion && s.pool != 0):
		s.state, s.task, *x = rowTracking, true, sender{}
		out(fmt.Sprintf("%d sees version %d at the node", i, s.pool), s)
	case s.state == rowSubmitted && !s.assumed:
		*x = sender{claimed, s.version}
		out(fmt.Sprintf("%d claims version %d again", i, s.version), s)
	default:
		s.task, *x = true, sender{}
		out(fmt.Sprintf("%d finds nothing due", i), s)
	}
}

// send gives a version to the node, which may refuse it.
func (p broadcasts) send(s broadcastState, i int, out func(string, broadcastState)) {
	x := s.senders[i]
	step := fmt.Sprintf("%d sends version %d: ", i, x.version)
	if s.refusals > 0 && s.mined == 0 && s.pool != x.version {
		to := s
		to.refusals--
		p.answer(to, i, false, step+"pool full", out)
	}
	switch {
	case s.mined != 0: // "nonce too low", and the chain knows one of the versions
		p.answer(s, i, true, step+"nonce too low", out)
	case s.pool > x.version:
		p.answer(s, i, false, step+"underpriced", out)
	default:
		s.pool, s.reached = x.version, s.reached|1<<x.version
		p.answer(s, i, true, step+"ok", out)
	}
}

// answer continues after the node's answer. The poll is enqueued beside the send.
func (p broadcasts) answer(s broadcastState, i int, ok bool, step string, out func(string, broadcastState)) {
	x := &s.senders[i]
	s.task = true
	switch {
	case x.at == claimed && ok:
		s.state, *x = rowTracking, sender{}
	case x.at == claimed:
		s.answered, *x = true, sender{}
	case ok:
		*x = sender{}
	default:
		x.at = refused
	}
	out(step, s)
}

// record writes the refusal of a version, if the row still has that version and no outcome.
func (p broadcasts) record(s broadcastState, i int, out func(string, broadcastState)) {
	x := &s.senders[i]
	step := fmt.Sprintf("%d records nothing", i)
	if still := s.state == rowSubmitted && s.version == x.version && !s.answered; still || !p.LoadsAgain {
		step = fmt.Sprintf("%d records the refusal of version %d", i, x.version)
		if s.version != x.version || s.state != rowSubmitted {
			s.broken = "a refusal of what the row no longer is"
		}
		s.answered = true
	}
	s.task, *x = true, sender{}
	out(step, s)
}

// violation describes how s breaks a property, or is "". A mined version decides whatever the row says.
func (s broadcastState) violation() string {
	if s.broken == "" && s.state == rowTracking && s.mined == 0 && !s.holds(s.version) {
		return "acknowledged, and no node had it"
	}
	return s.broken
}

// checkBroadcasts visits every interleaving of two invocations with two crashes, two refusals and a
// cancel.
func checkBroadcasts(r broadcastRules) modelcheck.Report {
	return modelcheck.Search(modelcheck.Machine[broadcastState, broadcastState, string]{
		Start: broadcastState{task: true, crashes: 2, refusals: 2, cancels: 1}, Key: func(s broadcastState) broadcastState { return s },
		Next: broadcasts{r}.next, Terminal: func(s broadcastState) bool { return s.state == rowEnded },
		Violation: func(s broadcastState, _ []string) string { return s.violation() }, Describe: broadcastState.violation,
	}, maxStates)
}

// The row never has the outcome of another version, and every run ends without the sweep.
func TestBroadcastsAfterTheReleaseHold(t *testing.T) {
	t.Parallel()
	checkBroadcasts(allBroadcastRules()).RequireHolds(t)
}

// Without any one rule a property is broken.
func TestEachRuleOfBroadcastsIsNeeded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leaveOut func(*broadcastRules)
		want     string
		events   []string
	}{
		"the release counts as the broadcast": {func(r *broadcastRules) { r.StaysDue = false }, modelcheck.NoEnd,
			[]string{"stores version 1 and releases", "dies"}},
		"recorded without loading again": {func(r *broadcastRules) { r.LoadsAgain = false }, "a refusal of what the row no longer is",
			[]string{"sends version 1: pool full", "records the refusal of version 1"}},
		"any version counts": {func(r *broadcastRules) { r.LastVersion = false }, "acknowledged, and no node had it",
			[]string{"stores version 2 and releases", "sees version 1 at the node"}},
		"a dead invocation's task is lost": {func(r *broadcastRules) { r.OwnTask = false }, modelcheck.NoEnd, []string{"dies"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := allBroadcastRules()
			c.leaveOut(&r)
			checkBroadcasts(r).RequireViolation(t, c.want, c.events...)
		})
	}
}
