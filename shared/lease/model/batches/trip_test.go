package batches

// tripOf is the kind of round trip that a call with that next step can share.
func tripOf(at pc) kind {
	switch at {
	case acquire:
		return acquires
	case write:
		return commits
	}
	return noTrip
}

// beginTrips begins the round trips that process i's calls can share.
func (p *protocol) beginTrips(s state, i uint8, out emit) {
	if s.processes[i].trip.kind != noTrip || p.waits(&s, i) {
		return
	}
	for _, of := range []kind{acquires, commits} {
		p.addMembers(s, i, 0, 0, step{op: opBegin, process: i}, of, out)
	}
}

// addMembers begins a round trip for each set of at least two calls. Tasks that wait can be delivered
// for it. members are those of the submitters below k.
func (p *protocol) addMembers(s state, i, k, members uint8, e step, of kind, out emit) {
	if k == maxSubmitters {
		if members&(members-1) != 0 {
			p.begin(s, i, of, members, false, e, out)
			if !p.Rules.OneOrder {
				p.begin(s, i, of, members, true, e, out)
			}
		}
		return
	}
	p.addMembers(s, i, k+1, members, e, of, out)
	if c := &s.processes[i].calls[k]; tripOf(c.pc) == of && !c.alone {
		p.addMembers(s, i, k+1, members|1<<k, e, of, out)
	}
	if of == acquires {
		for t := range s.submitters[k].token + 1 {
			p.deliver(s, i, k, task{token: t}, e, func(e step, to state) { p.addMembers(to, i, k+1, members|1<<k, e, of, out) })
		}
	}
}

// begin begins a transaction for the members and locks its first row. e has the step's op.
func (p *protocol) begin(s state, i uint8, of kind, members uint8, backward bool, e step, out emit) {
	x := &s.processes[i]
	x.trip = trip{kind: of, backward: backward}
	for k := range x.calls {
		if members&(1<<k) != 0 {
			x.trip.members[k] = member{in: true, claim: x.calls[k].claim}
			x.calls[k].pc = inTrip
		}
	}
	e.submitter, _ = x.trip.row()
	p.lock(&s, i)
	e.kind, e.members, e.result = of, members, x.trip.members[e.submitter].result
	out(e, s)
}

// row is the submitter whose row is locked next, unless all rows are.
func (t *trip) row() (k uint8, more bool) {
	for ; t.at < maxSubmitters; t.at++ {
		k = t.at
		if t.backward {
			k = maxSubmitters - 1 - t.at
		}
		if t.members[k].in {
			return k, true
		}
	}
	return 0, false
}

// waitsFor is the process for whose row lock process i's transaction waits, encoded as owner.
func (p *protocol) waitsFor(s *state, i uint8) uint8 {
	t := s.processes[i].trip
	k, more := t.row()
	if t.kind == noTrip || t.committed || t.aborted || !more || p.Rules.SkipLocked {
		return nobody
	}
	return s.submitters[k].locked
}

// deadlocked reports whether both processes wait for each other.
func (p *protocol) deadlocked(s *state) bool {
	return p.waitsFor(s, 0) == 2 && p.waitsFor(s, 1) == 1
}

// lock locks the next row of process i's transaction, or skips it. It does nothing if the
// transaction waits for the row.
func (p *protocol) lock(s *state, i uint8) {
	t := &s.processes[i].trip
	k, _ := t.row()
	if p.waitsFor(s, i) != nobody {
		return
	}
	b, m := &s.submitters[k], &t.members[k]
	isFirst := t.firstIs(k)
	t.at++
	switch {
	case b.locked != nobody:
		m.result = skipped
		if t.kind == acquires {
			m.token = b.token
		}
	case t.kind == acquires && b.isFree(i+1):
		m.result, m.seen, b.locked = taken, b.queued(), i+1
	case t.kind == acquires:
		m.result, m.token = held, b.token
		if p.Rules.MarkUnderLock {
			b.locked = i + 1
		}
	case b.holds(m.claim), !p.Rules.FencePerMember && !isFirst:
		m.result, m.seen, b.locked = wrote, b.queued()-min(m.queued, b.queued()), i+1
	default:
		m.result = fenced
	}
}

// firstIs reports whether k is the first member.
func (t *trip) firstIs(k uint8) bool {
	first := *t
	first.at = 0
	at, _ := first.row()
	return at == k
}

// tripStep emits the next step of process i's transaction: a lock, the commit, or its answer.
func (p *protocol) tripStep(s state, i uint8, out emit) {
	t := &s.processes[i].trip
	e := step{process: i, kind: t.kind}
	switch k, more := t.row(); {
	case t.kind == noTrip || p.waitsFor(&s, i) != nobody:
	case t.aborted:
		p.unanswered(&s, i)
		out(e.of(opAborted), s)
	case t.committed:
		p.answer(s, i, e.of(opAnswer), out)
	case more:
		p.lock(&s, i)
		e.submitter, e.result = k, s.processes[i].trip.members[k].result
		out(e.of(opLock), s)
	default:
		p.refuse(s, i, e, out)
		p.commitTrip(&s, i)
		out(e.of(opCommit), s)
	}
}

// commitTrip commits process i's transaction.
func (p *protocol) commitTrip(s *state, i uint8) {
	t := &s.processes[i].trip
	if !p.Rules.FencedFailsAlone && t.has(fenced) {
		p.failAll(s, i)
		return
	}
	t.committed = true
	for k := range uint8(maxSubmitters) {
		m, b := &t.members[k], &s.submitters[k]
		switch m.result {
		case taken:
			b.take(i + 1)
			b.expired, m.token = m.stale, b.token
			if m.left {
				b.owner = gone
			}
		case held:
			b.mark = b.mark || b.token == m.token
		case wrote:
			m.result = s.commit(k, m.claim)
		}
	}
	s.unlock(i)
	if t.orphan {
		*t = trip{}
	}
}

// has reports whether a member has that result.
func (t *trip) has(r result) bool {
	for k := range t.members {
		if t.members[k].result == r {
			return true
		}
	}
	return false
}

// failAll rolls back. Every member counts as fenced.
func (p *protocol) failAll(s *state, i uint8) {
	x := &s.processes[i]
	for k := range x.calls {
		if m := &x.trip.members[k]; m.in && !m.left {
			s.harmed = s.harmed || m.result == wrote
			x.calls[k].fenced()
		}
	}
	s.unlock(i)
	x.trip = trip{}
}

// answer gives the results to the members, whose queues it has read, or is lost.
func (p *protocol) answer(s state, i uint8, e step, out emit) {
	if s.left.Losses > 0 {
		to := s
		to.left.Losses--
		p.unanswered(&to, i)
		out(e.of(opUnanswered), to)
	}
	t := s.processes[i].trip
	s.processes[i].trip = trip{}
	repeated := !p.Rules.FencedDropsOut && t.has(fenced)
	for k := range uint8(maxSubmitters) {
		m := t.members[k]
		if m.left && m.result == taken {
			p.releaseFor(&s, k, m)
		}
		if !m.in || m.left {
			continue
		}
		if repeated && m.result != fenced {
			m.result = skipped
		}
		p.resume(&s, i, k, t.kind, m)
	}
	out(e, s)
}

// releaseFor releases the lease that was taken for a caller that has left, under the next token, and
// enqueues an advance.
func (p *protocol) releaseFor(s *state, k uint8, m member) {
	b := &s.submitters[k]
	if p.Rules.LeaverIsReleased && b.owner == gone && b.token == m.token {
		b.giveUp()
		b.advances.make(b.token)
	}
}

// resume continues the call of member m after its answer.
func (p *protocol) resume(s *state, i, k uint8, of kind, m member) {
	b, c := &s.submitters[k], &s.processes[i].calls[k]
	seen := b.queued()
	switch m.result {
	case taken:
		c.token = m.token
		p.load(s, i, k, seen)
	case held:
		c.found(m.token)
	case skipped:
		p.skipped(s, i, k, of, m)
	case fenced:
		c.fenced()
	case released:
		if !p.Rules.RecheckAfterCommit {
			seen = m.seen
		}
		p.recheck(s, i, k, seen)
	default:
		p.wrote(s, i, k, m.result)
	}
}

// skipped repeats a call alone, because its row was locked or the transaction was rolled back.
func (p *protocol) skipped(s *state, i, k uint8, of kind, m member) {
	c := &s.processes[i].calls[k]
	switch {
	case of == acquires && p.Rules.SkippedGoesAlone:
		c.pc, c.alone = acquire, true
	case of == acquires:
		c.found(m.token)
	case p.Rules.SkippedGoesAlone:
		c.pc, c.alone = write, true
	default:
		s.harmed = s.harmed || s.submitters[k].holds(c.claim)
		c.fenced()
	}
}

// unanswered continues the members' calls if the transaction's result is unknown.
func (p *protocol) unanswered(s *state, i uint8) {
	x := &s.processes[i]
	for k := range x.calls {
		if m := &x.trip.members[k]; m.in && !m.left {
			if x.trip.kind == commits && !p.Rules.UnknownReadsBack {
				x.calls[k].pc, x.calls[k].alone = write, true
				continue
			}
			x.calls[k].fenced()
		}
	}
	x.trip = trip{}
}

// refuse rolls the transaction back: because of one member, or of none.
func (p *protocol) refuse(s state, i uint8, e step, out emit) {
	if s.left.Refusals == 0 || s.processes[i].trip.orphan {
		return
	}
	s.left.Refusals--
	t := s.processes[i].trip
	s.processes[i].trip = trip{}
	s.unlock(i)
	for bad := range uint8(maxSubmitters + 1) {
		if bad < maxSubmitters && (t.members[bad].result != wrote || t.members[bad].left) {
			continue
		}
		to := s
		for k := range uint8(maxSubmitters) {
			if m := t.members[k]; m.in && !m.left {
				to.processes[i].calls[k].bad = bad == k
				p.refused(&to, i, k, t.kind, m)
			}
		}
		e.submitter = bad
		out(e.of(opRefuse), to)
	}
}

// refused continues the call of a member whose transaction was refused.
func (p *protocol) refused(s *state, i, k uint8, of kind, m member) {
	c := &s.processes[i].calls[k]
	switch {
	case m.result == fenced:
		c.fenced()
	case p.Rules.RepeatedAlone && of == acquires:
		c.pc, c.alone = acquire, true
	case p.Rules.RepeatedAlone:
		c.pc, c.alone = write, true
	default:
		s.harmed = s.harmed || !c.bad
		s.fail(i, k)
	}
}
