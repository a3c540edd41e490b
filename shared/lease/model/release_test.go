package model

// release releases the lease, or iterates again if the mark is set.
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
	case p.readsAgain() && !p.Rules.ReadIsAfterCommit:
		c := &s.calls[i]
		c.queued, c.pc = s.queued(), letGo
		out(e.of(opReadAfter).seen(c), s)
	case !p.Rules.ReleaseInOneStatement:
		s.calls[i].pc = letGo
		out(e.of(opNoMark), s)
	default:
		p.free(s, i, e, out)
	}
}

// letGo releases without reading the mark again.
func (p *protocol) letGo(s state, i uint8, e step, out emit) {
	if s.lease.owner != i+1 {
		p.stop(s, i, e, out)
		return
	}
	p.free(s, i, e, out)
}

// again begins another iteration.
func (p *protocol) again(s state, i uint8, e step, out emit) {
	c := &s.calls[i]
	if !p.Rules.TokenVisibleBeforeLoad {
		s.lease.locked = i + 1
		s.read(i)
		c.pc = commitRead
		out(e.of(opLockAndRead).seen(c), s)
		return
	}
	p.raise(&s.lease, i)
	c.pc = load
	e.token = s.lease.token
	out(e.of(opAgain), s)
}

// raise updates the lease's row at the beginning of another iteration.
func (p *protocol) raise(l *lease, i uint8) {
	if p.Rules.TokenPerIteration || l.phase != live {
		l.take(i)
		return
	}
	l.mark = false
}

// commitRead commits the transaction that locked the row and read the queue.
func (p *protocol) commitRead(s state, i uint8, e step, out emit) {
	s.lease.locked = nobody
	if s.lease.owner == i+1 {
		p.raise(&s.lease, i)
	} else {
		s.lease.take(i)
	}
	e.token = s.lease.token
	p.plan(s, i, e.of(opTake), out)
}

// free stores the released lease: owner_node = ”.
func (p *protocol) free(s state, i uint8, e step, out emit) {
	token := s.lease.token
	if p.Shape.ReleaseRaises {
		token++
	}
	s.lease = lease{token: token, mark: s.lease.mark}
	p.leave(s, i, e.of(opRelease), out)
}

// forceRelease releases the lease although the mark is set. It owes an advance for the mark, under
// the token of the same statement.
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

// leave continues with the tasks that are owed after the release.
func (p *protocol) leave(s state, i uint8, e step, out emit) {
	c := &s.calls[i]
	if p.Rules.EnqueueAfterRelease {
		p.owe(c)
	}
	if p.readsAgain() && !p.Rules.ReadIsAfterCommit {
		c.owesAdvance = c.owesAdvance || p.room(c)
	}
	p.spare(c)
	if e.op != opForceRelease && p.readsAgain() && p.Rules.ReadIsAfterCommit {
		*c = call{pc: readAfter, job: c.job, copy: c.copy, queued: c.queued, flight: c.flight, owesAdvance: c.owesAdvance, owesPoll: c.owesPoll, freed: true, token: s.lease.token}
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

// readsAgain reports whether a holder reads the queue once more when it releases.
func (p *protocol) readsAgain() bool {
	return p.Shape.CreateSkips && p.Rules.EnqueueAfterRelease && p.Rules.ReadAfterRelease
}

// readAfter reads the queue again after the release's commit. The transaction in flight is known,
// because no other invocation changed it under the lease. It names an advance by the token of the
// release. If that name is used up, a later lease session has begun and has read the same.
func (p *protocol) readAfter(s state, i uint8, e step, out emit) {
	c := &s.calls[i]
	c.queued = s.queued()
	e = e.of(opReadAfter).seen(c)
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

// spare drops the poll that an advance replaces: the advance reads everything and enqueues a poll
// itself.
func (p *protocol) spare(c *call) {
	c.owesPoll = c.owesPoll && !(c.owesAdvance && p.Shape.CreateSkips && p.signs(c))
}

// pay continues with the next owed task after e, or answers.
func (p *protocol) pay(s state, i uint8, e step, out emit) {
	c := &s.calls[i]
	if c.pc = p.owed(c); c.pc == idle {
		p.answer(s, i, e, out)
		return
	}
	out(e, s)
}

// readToken reads the current token, to name an advance by it.
func (p *protocol) readToken(s state, i uint8, e step, out emit) {
	c := &s.calls[i]
	c.token = s.lease.token
	c.pc = nameAdvance
	e.token = c.token
	out(e.of(opReadToken), s)
}

// nameAdvance enqueues the owed advance.
func (p *protocol) nameAdvance(s state, i uint8, e step, out emit) {
	p.fail(s, i, e, out)
	c := &s.calls[i]
	e.job = task{kind: advance, token: c.token}
	e.op = made(s.advances.make(c.token), opNames, opBurnt)
	c.token, c.owesAdvance = 0, false
	p.pay(s, i, e, out)
}

// namePoll enqueues the owed poll. It is due in a later second than any that was delivered, so its
// name is free; a waiting one may have the same name.
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
