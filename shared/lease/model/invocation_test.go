package model

// nextSteps has the step that an invocation takes at each of its program counters.
var nextSteps = [...]func(p *protocol, s state, i uint8, e step, out emit){
	arrive:      (*protocol).arrive,
	waitLock:    (*protocol).acquire,
	commitRead:  (*protocol).commitRead,
	markApart:   (*protocol).markApart,
	makeDelayed: (*protocol).makeDelayed,
	load:        (*protocol).load,
	work:        (*protocol).work,
	write:       (*protocol).write,
	release:     (*protocol).release,
	letGo:       (*protocol).letGo,
	readAfter:   (*protocol).readAfter,
	readToken:   (*protocol).readToken,
	nameAdvance: (*protocol).nameAdvance,
	namePoll:    (*protocol).namePoll,
}

// invocation emits the next step of invocation i, unless it waits for the row lock or has ended.
func (p *protocol) invocation(s state, i uint8, out emit) {
	pc := s.calls[i].pc
	takesNoLock := pc == readToken || pc == nameAdvance || pc == namePoll || pc == load || pc == readAfter
	if !takesNoLock && s.lease.locked != nobody && s.lease.locked != i+1 {
		return
	}
	if int(pc) < len(nextSteps) && nextSteps[pc] != nil {
		nextSteps[pc](p, s, i, step{who: i}, out)
	}
}

// load reads the queue in a separate statement.
func (p *protocol) load(s state, i uint8, e step, out emit) {
	s.read(i)
	p.plan(s, i, e.of(opLoad).seen(&s.calls[i]), out)
}

// arrive acquires or sets the mark. Without LoadAfterLock its snapshot is taken first.
func (p *protocol) arrive(s state, i uint8, e step, out emit) {
	e.who, e.job = i, s.calls[i].job
	if p.Rules.LoadAfterLock {
		p.acquire(s, i, e, out)
		return
	}
	s.read(i)
	s.calls[i].pc = waitLock
	out(e.of(opSnapshot).seen(&s.calls[i]), s)
}

// read reads the queue and the transaction in flight.
func (s *state) read(i uint8) {
	c := &s.calls[i]
	c.queued, c.head, c.flight = s.queued(), s.head, s.flight
}

// acquire takes the lease if that is possible, and otherwise sets the mark.
func (p *protocol) acquire(s state, i uint8, e step, out emit) {
	c, l := &s.calls[i], &s.lease
	if l.owner != nobody && l.owner != i+1 && l.phase != takeable {
		p.lose(s, i, e, out)
		return
	}
	if !p.Rules.TokenVisibleBeforeLoad {
		l.locked = i + 1
		s.read(i)
		c.pc = commitRead
		out(e.of(opLockAndRead).seen(c), s)
		return
	}
	l.take(i)
	e.token = l.token
	if c.pc == waitLock {
		p.plan(s, i, e.of(opTake), out)
		return
	}
	c.pc = load
	out(e.of(opTake), s)
}

// take gives the lease to invocation i under a new token.
func (l *lease) take(i uint8) {
	*l = lease{owner: i + 1, token: l.token + 1}
}

// lose leaves the mark or the delayed task that invocation i owes when the lease is held.
func (p *protocol) lose(s state, i uint8, e step, out emit) {
	c, l := &s.calls[i], &s.lease
	*c = call{pc: makeDelayed, job: c.job, copy: c.copy, token: l.token, renewal: l.renewal}
	e = e.of(opFindHeld)
	switch {
	case p.Rules.Mark && !p.Rules.MarkInAcquire:
		c.pc = markApart
		out(e, s)
		return
	case p.Rules.Mark:
		l.mark = true
		e.op = opMark
	}
	if !p.Rules.DelayedTask {
		p.answer(s, i, e, out)
		return
	}
	out(e, s)
}

// markApart sets the mark in a separate statement, if the token is still the one that was read.
func (p *protocol) markApart(s state, i uint8, e step, out emit) {
	c := &s.calls[i]
	if s.lease.token == c.token {
		s.lease.mark = true
	}
	c.pc = makeDelayed
	if !p.Rules.DelayedTask {
		p.answer(s, i, e.of(opMarkApart), out)
		return
	}
	out(e.of(opMarkApart), s)
}

// makeDelayed enqueues the delayed task of an invocation that found the lease held.
func (p *protocol) makeDelayed(s state, i uint8, e step, out emit) {
	p.fail(s, i, e, out)
	c := &s.calls[i]
	e.job = task{kind: wake, token: c.token, renewal: c.renewal}
	burnt := false
	for r := range uint8(len(s.wakes)) {
		sameName := r == c.renewal || !p.Rules.DelayedTaskNamedByExpiry
		burnt = burnt || sameName && s.wakes[r].made&(1<<c.token) != 0
	}
	if !burnt {
		s.wakes[c.renewal].make(c.token)
	}
	p.answer(s, i, e.of(made(!burnt, opNames, opBurnt)), out)
}

// fail is a task that could not be enqueued. The invocation answers 503, and its own task is
// delivered again; without the rule it answers 2xx.
func (p *protocol) fail(s state, i uint8, e step, out emit) {
	if s.left.Failures == 0 {
		return
	}
	s.left.Failures--
	e.op = opFailed2xx
	if p.Rules.UnavailableWithoutTask {
		e.op = opFailed503
		if c := &s.calls[i]; !c.copy {
			s.putBack(c.job)
		}
	}
	s.end(i)
	out(e, s)
}

// answer ends invocation i after its last act e, with 2xx or by a crash before the answer.
func (p *protocol) answer(s state, i uint8, e step, out emit) {
	if c := s.calls[i]; s.left.Crashes > 0 && !c.copy {
		to := s
		to.left.Crashes--
		to.putBack(c.job)
		to.end(i)
		crash := e
		crash.dies = true
		out(crash, to)
	}
	s.end(i)
	e.answers = true
	out(e, s)
}

// signs and confirms report what an invocation may do.
func (p *protocol) signs(c *call) bool    { return p.Shape.WholeIteration || c.job.kind != poll }
func (p *protocol) confirms(c *call) bool { return p.Shape.WholeIteration || c.job.kind == poll }

// room reports whether the next intent may be sent.
func (p *protocol) room(c *call) bool { return c.queued > 0 && c.flight == none }

// plan continues with the next write that invocation i knows to be due, or with the end of its
// iteration.
func (p *protocol) plan(s state, i uint8, e step, out emit) {
	c := &s.calls[i]
	switch {
	case p.confirms(c) && c.flight == final, p.signs(c) && p.room(c):
		c.pc = work
	default:
		c.pc = release
		if !p.Rules.EnqueueAfterRelease {
			p.owe(c)
			c.sent, c.confirmed = false, false
			c.pc = p.owed(c)
		}
	}
	out(e, s)
}

// owe notes which tasks invocation i must enqueue.
func (p *protocol) owe(c *call) {
	if p.Rules.DueDecides {
		c.owesPoll = c.flight != none
		c.owesAdvance = c.owesAdvance || !p.signs(c) && p.room(c)
		return
	}
	c.owesPoll = c.sent && p.Shape.Window
	c.owesAdvance = c.owesAdvance || c.confirmed && !p.Shape.WholeIteration
}

// owed returns the step that enqueues the next owed task. Without one it returns release, or idle
// if the lease was released.
func (p *protocol) owed(c *call) pc {
	switch {
	case c.owesAdvance:
		return readToken
	case c.owesPoll:
		return namePoll
	case c.freed:
		return idle
	}
	return release
}

// fenced reports whether invocation i no longer holds the lease, or its lease has expired.
func (s *state) fenced(i uint8) bool {
	return s.lease.owner != i+1 || s.lease.phase != live
}

// stop ends or restarts an invocation after FENCED.
func (p *protocol) stop(s state, i uint8, e step, out emit) {
	if !p.Rules.FencedAcquiresAgain {
		p.answer(s, i, e.of(opFenced), out)
		return
	}
	c := &s.calls[i]
	*c = call{pc: arrive, job: c.job, copy: c.copy}
	out(e.of(opFenced), s)
}

// work is a fenced write. Without the row lock it is only the check of the fence.
func (p *protocol) work(s state, i uint8, e step, out emit) {
	if s.fenced(i) {
		p.stop(s, i, e, out)
		return
	}
	if !p.Rules.RowLock {
		s.calls[i].pc = write
		out(e.of(opFenceHolds), s)
		return
	}
	p.write(s, i, e, out)
}

// write confirms a final transaction or sends the head of the queue.
func (p *protocol) write(s state, i uint8, e step, out emit) {
	c := &s.calls[i]
	e.op = opSend
	if c.flight == final {
		e.op = opConfirm
	}
	if s.lease.owner != i+1 {
		s.unsafe = true
		out(e, s)
		return
	}
	switch {
	case e.op == opConfirm && s.flight == final:
		s.flight, c.flight, c.confirmed = none, none, true
	case e.op == opSend && s.head == c.head && s.flight == none:
		p.send(&s, c)
	default:
		p.moved(s, i, e, out)
		return
	}
	p.plan(s, i, e, out)
}

// send takes the head off the queue.
func (p *protocol) send(s *state, c *call) {
	s.head++
	c.head++
	c.queued--
	c.sent = true
	if p.Shape.Window {
		s.flight, c.flight = sent, sent
	}
}

// moved is a write whose fence held and whose row had changed since it was loaded.
func (p *protocol) moved(s state, i uint8, e step, out emit) {
	if !p.Rules.MovedRowLoadsAgain {
		p.answer(s, i, e.of(opTakenForFenced), out)
		return
	}
	s.calls[i].pc = load
	out(e.of(opMoved), s)
}
