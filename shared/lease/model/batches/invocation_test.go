package batches

// step emits the next step of process i's invocation for submitter k, unless it waits for a round
// trip or a row lock.
func (p *protocol) step(s state, i, k uint8, out emit) {
	c := &s.processes[i].calls[k]
	e := step{process: i, submitter: k}
	isLocked := s.submitters[k].locked != nobody
	if tripOf(c.pc) != noTrip && !c.alone && p.waits(&s, i) {
		return
	}
	switch c.pc {
	case acquire:
		p.acquireAlone(s, i, k, e, out)
	case load:
		p.load(&s, i, k, s.submitters[k].queued())
		out(e.of(opLoad).seen(c.queued), s)
	case write:
		if !isLocked {
			p.writeAlone(s, i, k, e, out)
		}
	case iterate:
		if !isLocked {
			p.iterate(s, i, k, e, out)
		}
	case recheck:
		e = e.seen(s.submitters[k].queued())
		p.recheck(&s, i, k, e.queued)
		out(e.of(opRecheck), s)
	case nameAdvance, makeDelayed:
		p.enqueue(s, i, k, e, out)
	}
}

// waits reports whether the calls of process i wait for one that is under way.
func (p *protocol) waits(s *state, i uint8) bool {
	x := &s.processes[i]
	if p.Rules.OthersGoOn {
		return false
	}
	for k := range x.calls {
		if x.calls[k].alone {
			return true
		}
	}
	return x.trip.kind != noTrip
}

// acquireAlone acquires or marks, in a transaction with no other call.
func (p *protocol) acquireAlone(s state, i, k uint8, e step, out emit) {
	b, c := &s.submitters[k], &s.processes[i].calls[k]
	if b.locked != nobody {
		return
	}
	c.alone = false
	if !b.isFree(i + 1) {
		b.mark = true
		c.found(b.token)
		out(e.of(opMark), s)
		return
	}
	b.take(i + 1)
	c.pc, c.claim = load, claim{token: b.token}
	e.token = b.token
	out(e.of(opTake), s)
}

// found continues after another was found to hold the lease.
func (c *call) found(token uint8) {
	c.pc, c.claim = makeDelayed, claim{token: token}
}

// load notes the queue that was read. A commit is due.
func (p *protocol) load(s *state, i, k, queued uint8) {
	c := &s.processes[i].calls[k]
	c.pc, c.next, c.queued = write, s.submitters[k].bound, queued
	c.release = queued == 0 || !p.WritesTwice
}

// writeAlone commits, in a transaction with no other call.
func (p *protocol) writeAlone(s state, i, k uint8, e step, out emit) {
	c := &s.processes[i].calls[k]
	switch {
	case !s.submitters[k].holds(c.claim):
		c.fenced()
		out(e.of(opFenced), s)
	case c.bad:
		s.fail(i, k)
		out(e.of(opFail), s)
	default:
		e = e.seen(c.queued)
		e.release = c.release
		c.alone = false
		p.wrote(&s, i, k, s.commit(k, c.claim))
		out(e.of(opWrite), s)
	}
}

// fenced acquires again.
func (c *call) fenced() {
	c.pc, c.alone, c.bad, c.claim = acquire, false, false, claim{}
}

// wrote continues after the answer to a commit.
func (p *protocol) wrote(s *state, i, k uint8, did result) {
	c := &s.processes[i].calls[k]
	switch did {
	case released:
		c.pc = recheck
	case marked:
		c.pc = iterate
	case wrote:
		c.pc, c.release = write, true
		c.next, c.queued = c.next+c.queued, 0
	}
}

// iterate begins another iteration under the next token.
func (p *protocol) iterate(s state, i, k uint8, e step, out emit) {
	b, c := &s.submitters[k], &s.processes[i].calls[k]
	if !b.holds(c.claim) {
		c.fenced()
		out(e.of(opFenced), s)
		return
	}
	b.take(i + 1)
	c.pc, c.claim = load, claim{token: b.token}
	e.token = b.token
	out(e.of(opIterate), s)
}

// recheck continues after the queue was read behind the release. It ends the invocation, or an
// advance is due.
func (p *protocol) recheck(s *state, i, k, queued uint8) {
	if queued == 0 {
		s.end(i, k)
		return
	}
	c := &s.processes[i].calls[k]
	c.pc, c.claim = nameAdvance, claim{token: c.token}
}

// enqueue enqueues the task that is due, and answers. The process may die in between.
func (p *protocol) enqueue(s state, i, k uint8, e step, out emit) {
	b, c := &s.submitters[k], &s.processes[i].calls[k]
	e.token = c.token
	if c.pc == nameAdvance {
		e.op = made(b.advances.make(c.token), opMakesAdvance, opBurnt)
	} else {
		e.op = made(b.wakes.make(c.token), opMakesDelayed, opBurnt)
	}
	p.crash(s, i, e, out)
	s.end(i, k)
	out(e, s)
}
