package model

// release lets the lease go, or goes round again when the mark is set.
func (p *protocol) release(s state, i uint8, e step, out emit) {
	l := &s.lease
	switch {
	case l.owner != i+1, p.Shape.StrictRelease && l.phase != live:
		p.stop(s, i, e, out)
	case l.mark:
		if s.left.Forced > 0 {
			p.forceRelease(s, i, e, out)
		}
		p.again(s, i, e, out)
	case p.looksAgain() && !p.Rules.LookIsAfterCommit:
		c := &s.calls[i]
		c.queued, c.pc = s.queued(), letGo
		out(e.of(opLookAfter).seen(c), s)
	case !p.Rules.ReleaseInOneStatement:
		s.calls[i].pc = letGo
		out(e.of(opNoMark), s)
	default:
		p.free(s, i, e, out)
	}
}

// letGo releases without another look at the mark.
func (p *protocol) letGo(s state, i uint8, e step, out emit) {
	if s.lease.owner != i+1 {
		p.stop(s, i, e, out)
		return
	}
	p.free(s, i, e, out)
}

// again begins another round.
func (p *protocol) again(s state, i uint8, e step, out emit) {
	c := &s.calls[i]
	if !p.Rules.TokenVisibleBeforeLoad {
		s.lease.locked = i + 1
		s.look(i)
		c.pc = commitLook
		out(e.of(opLockAndLook).seen(c), s)
		return
	}
	p.raise(&s.lease, i)
	c.pc = load
	e.token = s.lease.token
	out(e.of(opAgain), s)
}

// raise is the lease's row at the beginning of another round.
func (p *protocol) raise(l *lease, i uint8) {
	if p.Rules.TokenPerRound || l.phase != live {
		l.take(i)
		return
	}
	l.mark = false
}

// commitLook commits the transaction that locked the row and read the queue.
func (p *protocol) commitLook(s state, i uint8, e step, out emit) {
	s.lease.locked = nobody
	if s.lease.owner == i+1 {
		p.raise(&s.lease, i)
	} else {
		s.lease.take(i)
	}
	e.token = s.lease.token
	p.plan(s, i, e.of(opTake), out)
}

// free is the released lease: owner_node = ”.
func (p *protocol) free(s state, i uint8, e step, out emit) {
	token := s.lease.token
	if p.Shape.ReleaseRaises {
		token++
	}
	s.lease = lease{token: token, mark: s.lease.mark}
	p.leave(s, i, e.of(opRelease), out)
}

// forceRelease lets the lease go although the mark is set, and owes an advance
// for it, under the token of that very statement.
func (p *protocol) forceRelease(s state, i uint8, e step, out emit) {
	s.left.Forced--
	c, l := &s.calls[i], &s.lease
	token := l.token
	if p.Rules.ForcedReleaseRaises {
		token++
	}
	*l = lease{token: token, mark: true}
	c.owesAdvance = true
	e.token = token
	p.leave(s, i, e.of(opForceRelease), out)
}

// leave goes on to what is owed after the release.
func (p *protocol) leave(s state, i uint8, e step, out emit) {
	c := &s.calls[i]
	if p.Rules.EnqueueAfterRelease {
		p.owe(c)
	}
	if p.looksAgain() && !p.Rules.LookIsAfterCommit {
		c.owesAdvance = c.owesAdvance || p.room(c)
	}
	p.spare(c)
	if e.op != opForceRelease && p.looksAgain() && p.Rules.LookIsAfterCommit {
		*c = call{pc: lookAfter, job: c.job, copy: c.copy, queued: c.queued, flight: c.flight, owesAdvance: c.owesAdvance, owesPoll: c.owesPoll, freed: true, token: s.lease.token}
		out(e, s)
		return
	}
	*c = call{pc: idle, job: c.job, copy: c.copy, owesAdvance: c.owesAdvance, owesPoll: c.owesPoll, freed: true}
	if e.op == opForceRelease {
		c.pc, c.token = nameAdvance, e.token
		out(e, s)
		return
	}
	p.pay(s, i, e, out)
}

// looksAgain: a holder looks at the queue once more when it releases.
func (p *protocol) looksAgain() bool {
	return p.Shape.CreateSkips && p.Rules.EnqueueAfterRelease && p.Rules.LookAfterRelease
}

// lookAfter looks at the queue again, once the release has committed. What is in
// flight it knows: nobody else moved it while it held. It names an advance by the
// token that it released under: where that name is used up, a tenure has begun
// since, and has seen what this look sees.
func (p *protocol) lookAfter(s state, i uint8, e step, out emit) {
	c := &s.calls[i]
	c.queued = s.queued()
	e = e.of(opLookAfter).seen(c)
	c.owesAdvance = c.owesAdvance || p.room(c)
	p.spare(c)
	token := c.token
	*c = call{pc: idle, job: c.job, copy: c.copy, owesAdvance: c.owesAdvance, owesPoll: c.owesPoll, freed: true}
	if c.owesAdvance {
		c.pc, c.token = nameAdvance, token
		out(e, s)
		return
	}
	p.pay(s, i, e, out)
}

// spare drops the poll that an advance makes needless: it looks at everything, and
// leaves a poll of its own.
func (p *protocol) spare(c *call) {
	c.owesPoll = c.owesPoll && !(c.owesAdvance && p.Shape.CreateSkips && p.signs(c))
}

// pay goes on to what is owed next after e, or answers.
func (p *protocol) pay(s state, i uint8, e step, out emit) {
	c := &s.calls[i]
	if c.pc = p.owed(c); c.pc == idle {
		p.answer(s, i, e, out)
		return
	}
	out(e, s)
}

// readToken reads the token in force, to name an advance by it.
func (p *protocol) readToken(s state, i uint8, e step, out emit) {
	c := &s.calls[i]
	c.token = s.lease.token
	c.pc = nameAdvance
	e.token = c.token
	out(e.of(opReadToken), s)
}

// nameAdvance makes the advance task it owes.
func (p *protocol) nameAdvance(s state, i uint8, e step, out emit) {
	p.fail(s, i, e, out)
	c := &s.calls[i]
	e.job = task{kind: advance, token: c.token}
	e.op = made(s.advances.make(c.token), opNames, opBurnt)
	c.token, c.owesAdvance = 0, false
	p.pay(s, i, e, out)
}

// namePoll makes the poll it owes. It is due in a later second than any that was
// delivered, so its name is not burnt; one that waits may have the same name.
func (p *protocol) namePoll(s state, i uint8, e step, out emit) {
	p.fail(s, i, e, out)
	s.calls[i].owesPoll = false
	e.job = task{kind: poll}
	if s.polls > 0 {
		p.pay(s, i, e.of(opMerges), out)
	}
	if s.polls == 0 || s.polls == 1 && p.Shape.PollsApart {
		s.polls++
		p.pay(s, i, e.of(opNames), out)
	}
}
