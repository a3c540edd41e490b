package model

// protocol is the transition system that [Check] searches: the rules of a run, and the steps of
// everything but invocations.
type protocol struct {
	Run
}

// emit takes one enabled step and the state that it leads to.
type emit = func(step, state)

func (p *protocol) start() state {
	s := state{left: p.Budget}
	for i := range s.creators {
		s.creators[i].token = unread
		if i >= int(p.Budget.Creates) {
			s.creators[i] = creator{pc: createDone}
		}
	}
	return s
}

func (p *protocol) key(s state) state {
	if p.distinct {
		return s
	}
	return s.canonical()
}

func (p *protocol) next(s state, out emit) {
	if p.over(&s) {
		return
	}
	quiet := true
	busy := func(e step, to state) {
		quiet = false
		out(e, to)
	}
	for i := range p.Budget.Creates {
		p.create(s, i, busy)
	}
	for i := range p.Budget.Invocations {
		if s.calls[i].pc != idle {
			p.invocation(s, i, busy)
			p.faults(s, i, out)
		}
	}
	p.world(s, busy)
	p.time(s, out)
	if i, ok := p.slot(&s); ok {
		p.deliveries(s, i, busy)
		p.wakes(s, i, quiet, out)
	}
}

// over reports whether no worse verdict can follow the state: all is done and no write is under
// way, or the state already has a verdict.
func (p *protocol) over(s *state) bool {
	if s.unsafe || s.lease.token >= maxToken {
		return true
	}
	for i := range s.creators {
		if s.creators[i].pc != createDone {
			return false
		}
	}
	for i := range s.calls {
		if pc := s.calls[i].pc; pc == work || pc == write {
			return false
		}
	}
	return !s.unfinished()
}

func (p *protocol) evaluate(s state, enabled []step) Verdict {
	v := p.verdictOf(&s, enabled)
	if v == p.Accept {
		return Holds
	}
	return v
}

func (p *protocol) verdictOf(s *state, enabled []step) Verdict {
	if s.unsafe {
		return Unsafe
	}
	if s.lease.token >= maxToken {
		return Unbounded
	}
	if !s.unfinished() {
		return Holds
	}
	if len(enabled) == 0 {
		return Lost
	}
	if p.faultless(s) && onlyWaits(enabled) {
		return Late
	}
	return Holds
}

// faultless reports whether no fault has occurred in this run.
func (p *protocol) faultless(s *state) bool {
	l, b := s.left, p.Budget
	return l.Crashes == b.Crashes && l.Pauses == b.Pauses && l.Duplicates == b.Duplicates && l.Failures == b.Failures
}

// onlyWaits reports whether each step is a delayed task that becomes due, or time that passes.
func onlyWaits(steps []step) bool {
	for _, e := range steps {
		if e.op != opTime && !(e.delivered && e.job.kind == wake) {
			return false
		}
	}
	return true
}

// create does one step of create i: commit, read the token, enqueue the task.
func (p *protocol) create(s state, i uint8, out emit) {
	c := &s.creators[i]
	at := c.pc
	if !p.Rules.TokenAfterCommit && at < 2 {
		at = 1 - at
	}
	e := step{who: i}
	switch at {
	case 0:
		s.committed++
		e.op = opCommit
	case 1:
		c.token = s.lease.token
		e.op, e.token = opCreateReads, c.token
		if p.Shape.CreateSkips && p.Rules.TokenAfterCommit && p.served(&s) {
			*c = creator{pc: creatorPC(2), token: 0}
			e.op = opCreateSkips
		}
	case 2:
		e.job = task{kind: advance, token: c.token}
		e.op = made(s.advances.make(c.token), opCreateNames, opCreateBurnt)
		c.token = 0
	default:
		return
	}
	c.pc++
	out(e, s)
}

// served reports whether a holder will read the queue after the create's commit: the holder of an
// unexpired lease, or the invocation that frees the window.
func (p *protocol) served(s *state) bool {
	return s.lease.owner != nobody && s.lease.phase == live || p.Shape.Window && s.flight != none
}

func made(isNew bool, yes, no op) op {
	if isNew {
		return yes
	}
	return no
}

// world emits acts of others: the chain finalizes a sent transaction, a caller cancels the head of
// the queue.
func (p *protocol) world(s state, out emit) {
	if s.flight == sent {
		to := s
		to.flight = final
		out(step{op: opFinal}, to)
	}
	if s.left.Cancels > 0 && s.queued() > 0 {
		to := s
		to.left.Cancels--
		to.head++
		out(step{op: opCancel}, to)
	}
}

// faults emits the faults of invocation i: it dies, or pauses until its lease has expired. It also
// emits its renewal, which is no fault.
func (p *protocol) faults(s state, i uint8, out emit) {
	if s.left.Crashes > 0 {
		to := s
		to.left.Crashes--
		if c := &to.calls[i]; !c.copy {
			to.putBack(c.job)
		}
		to.end(i)
		out(step{op: opCrash, who: i}, to)
	}
	if s.lease.owner != i+1 || s.lease.phase != live || s.lease.locked != 0 {
		return
	}
	if s.left.Pauses > 0 {
		to := s
		to.left.Pauses--
		to.lease.phase = expired
		out(step{op: opPause, who: i}, to)
	}
	if s.left.Renewals > 0 {
		to := s
		to.left.Renewals--
		to.lease.renewal++
		out(step{op: opRenew, who: i}, to)
	}
}

// end empties the slot of invocation i. A lease that it did not release stays with a dead owner.
func (s *state) end(i uint8) {
	if s.lease.owner == i+1 {
		s.lease.owner = gone
	}
	if s.lease.locked == i+1 {
		s.lease.locked = nobody
	}
	s.calls[i] = call{}
}

// time passes: the expires_at of a dead holder, or the skew allowance after it.
func (p *protocol) time(s state, out emit) {
	if l := s.lease; l.owner == gone && l.phase == live || l.owner != nobody && l.phase == expired {
		s.lease.phase++
		out(step{op: opTime, phase: s.lease.phase}, s)
	}
}

// slot returns a free slot if the lease's row is not locked. The first step of an invocation would
// wait for the lock.
func (p *protocol) slot(s *state) (i uint8, ok bool) {
	if s.lease.locked != nobody {
		return 0, false
	}
	for i := range p.Budget.Invocations {
		if s.calls[i].pc == idle {
			return i, true
		}
	}
	return 0, false
}

// deliveries offers every task that is due at once. It bounds the polls before anything can be
// confirmed, because each is only enqueued again.
func (p *protocol) deliveries(s state, i uint8, out emit) {
	if to := s; s.polls > 0 && (s.flight != sent || s.left.Early > 0) {
		if s.flight == sent {
			to.left.Early--
		}
		p.deliver(to, task{kind: poll}, i, out)
	}
	for t := range s.lease.token + 1 {
		if s.advances.waiting&(1<<t) != 0 {
			p.deliver(s, task{kind: advance, token: t}, i, out)
		}
	}
}

// wakes offers the delayed tasks. They are due when no other step is left, or while a lease
// expires. Otherwise they are counted in [Budget], because every other step takes little time
// compared with a lease.
func (p *protocol) wakes(s state, i uint8, quiet bool, out emit) {
	for t := range s.lease.token + 1 {
		for r := range uint8(len(s.wakes)) {
			if s.wakes[r].waiting&(1<<t) == 0 || !p.canBeDue(&s.lease, t, r) {
				continue
			}
			to := s
			if !quiet && !longer(&s.lease, t, r) {
				if s.left.Slow == 0 {
					continue
				}
				to.left.Slow--
			}
			p.deliver(to, task{kind: wake, token: t, renewal: r}, i, out)
		}
	}
}

// canBeDue reports whether the delayed task for the lease with that token and renewal can be due.
func (p *protocol) canBeDue(l *lease, token, renewal uint8) bool {
	if l.owner == nobody || l.token != token || l.renewal != renewal {
		return true
	}
	return l.phase == takeable || !p.Rules.DelayedTaskAfterSkew && l.phase == expired
}

// longer reports whether a lease's duration has passed, because a lease has expired or was renewed.
func longer(l *lease, token, renewal uint8) bool {
	return l.owner != nobody && (l.phase != live || l.token == token && l.renewal > renewal)
}

// deliver starts invocation i for t, once and, within the budget, so that t is delivered again.
func (p *protocol) deliver(s state, t task, i uint8, out emit) {
	twice := s
	s.remove(t)
	s.calls[i] = call{pc: arrive, job: t}
	p.arrive(s, i, step{delivered: true}, out)
	if twice.left.Duplicates > 0 {
		twice.left.Duplicates--
		twice.calls[i] = call{pc: arrive, job: t, copy: true}
		p.arrive(twice, i, step{delivered: true, twice: true}, out)
	}
}
