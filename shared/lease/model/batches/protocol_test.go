package batches

// protocol is the transition system that [Check] searches.
type protocol struct{ Run }

// emit takes one enabled step and the state that it leads to.
type emit = func(step, state)

func (p *protocol) start() state {
	s := state{left: p.Budget}
	for k := range s.submitters {
		for i := range s.submitters[k].creators {
			if i >= int(p.Budget.Creates[k]) {
				s.submitters[k].creators[i].pc = createDone
			}
		}
	}
	return s
}

func (p *protocol) next(s state, out emit) {
	if p.over(&s) {
		return
	}
	prompt := false
	watched := func(e step, to state) {
		prompt = prompt || e.isPrompt()
		out(e, to)
	}
	for k := range uint8(maxSubmitters) {
		for c := range p.Budget.Creates[k] {
			p.create(s, k, c, watched)
		}
		p.expire(s, k, watched)
	}
	for i := range uint8(maxProcesses) {
		if s.processes[i].frozen {
			p.thaw(s, i, watched)
			continue
		}
		for k := range uint8(maxSubmitters) {
			p.step(s, i, k, watched)
			p.deliveries(s, i, k, watched)
		}
		p.beginTrips(s, i, watched)
		p.tripStep(s, i, watched)
		p.faults(s, i, watched)
	}
	p.wakes(s, !prompt, out)
}

// over reports whether no violation can follow: all is done and no write is under way, or there is
// a violation already.
func (p *protocol) over(s *state) bool {
	if s.loss || s.unbounded() {
		return true
	}
	for k := range s.submitters {
		for _, c := range s.submitters[k].creators {
			if c.pc != createDone {
				return false
			}
		}
		for i := range s.processes {
			if x := &s.processes[i]; x.calls[k].pc == write || x.trip.kind == commits {
				return false
			}
		}
	}
	return !s.unfinished(false)
}

// create does one step of a create: commit, read the lease, enqueue the task.
func (p *protocol) create(s state, k, i uint8, out emit) {
	b := &s.submitters[k]
	c := &b.creators[i]
	e := step{submitter: k}
	switch c.pc {
	case 0:
		b.committed++
		e.op = opCreate
	case 1:
		c.token = b.token
		e.op, e.token = opCreateReads, c.token
		if b.owner != nobody && !b.expired && !p.EveryCreate {
			*c = creator{pc: createDone - 1}
			e.op = opCreateSkips
		}
	case 2:
		e.op, e.token = made(b.advances.make(c.token), opCreateMakes, opCreateBurnt), c.token
		c.token = 0
	default:
		return
	}
	c.pc++
	out(e, s)
}

func made(isNew bool, yes, no op) op {
	if isNew {
		return yes
	}
	return no
}

// expire expires a dead owner's lease.
func (p *protocol) expire(s state, k uint8, out emit) {
	if b := &s.submitters[k]; b.owner == gone && !b.expired {
		b.expired = true
		out(step{op: opExpire, submitter: k}, s)
	}
}

// thaw lets a frozen process continue. Before, the server may end its session.
func (p *protocol) thaw(s state, i uint8, out emit) {
	if t := s.processes[i].trip; t.kind != noTrip && !t.committed && !t.aborted {
		to := s
		to.processes[i].trip.aborted = true
		to.unlock(i)
		out(step{op: opEndSession, process: i}, to)
	}
	s.processes[i].frozen = false
	out(step{op: opThaw, process: i}, s)
}

// deliveries offers the waiting advances of submitter k to process i. Each begins with an acquire
// that goes alone.
func (p *protocol) deliveries(s state, i, k uint8, out emit) {
	for t := range s.submitters[k].token + 1 {
		p.deliver(s, i, k, task{token: t}, step{process: i, submitter: k}, p.acquiring(i, k, out))
	}
}

// acquiring acquires alone after a delivery.
func (p *protocol) acquiring(i, k uint8, out emit) emit {
	return func(e step, to state) { p.acquireAlone(to, i, k, e, out) }
}

// deliver starts an invocation for t if t waits and process i can take it: once and, within the
// budget, so that t is delivered again.
func (p *protocol) deliver(s state, i, k uint8, t task, e step, out emit) {
	if !s.submitters[k].isWaiting(t) || s.processes[i].calls[k].pc != idle || p.waits(&s, i) {
		return
	}
	e.delivered |= 1 << k
	e.jobs[k] = t
	to := s
	to.submitters[k].remove(t)
	to.processes[i].calls[k] = call{pc: acquire, job: t}
	out(e, to)
	if s.left.Duplicates > 0 {
		s.left.Duplicates--
		s.processes[i].calls[k] = call{pc: acquire, job: t, copy: true}
		e.twice |= 1 << k
		out(e, s)
	}
}

// wakes offers the delayed tasks. They are due when their lease has ended. That takes longer than
// every step that is possible at once, unless a lease has expired.
func (p *protocol) wakes(s state, quiet bool, out emit) {
	for k := range uint8(maxSubmitters) {
		b := &s.submitters[k]
		if !quiet && !b.expired {
			continue
		}
		for t := range b.token + 1 {
			if b.owner != nobody && b.token == t && !b.expired {
				continue
			}
			for i := range uint8(maxProcesses) {
				if !s.processes[i].frozen {
					p.deliver(s, i, k, task{true, t}, step{process: i, submitter: k}, p.acquiring(i, k, out))
				}
			}
		}
	}
}

// faults emits the faults of process i.
func (p *protocol) faults(s state, i uint8, out emit) {
	p.crash(s, i, step{op: opCrash, process: i}, out)
	p.freeze(s, i, out)
	p.leave(s, i, out)
}

// crash ends process i. Its tasks are delivered again. The server rolls its transaction back, or has
// received all of it and commits.
func (p *protocol) crash(s state, i uint8, e step, out emit) {
	if s.left.Crashes == 0 || s.processes[i].calls == [maxSubmitters]call{} {
		return
	}
	s.left.Crashes--
	e.dies = true
	for k := range uint8(maxSubmitters) {
		p.meet(&s, i, k)
		s.retry(i, k)
	}
	if t := &s.processes[i].trip; t.kind != noTrip && !t.committed && !t.aborted {
		to := s
		e := e
		e.commits = true
		p.orphan(&to, i)
		out(e, to)
	}
	s.unlock(i)
	s.processes[i].trip = trip{}
	out(e, s)
}

// orphan leaves the transaction of process i, which has died, to the server.
func (p *protocol) orphan(s *state, i uint8) {
	t := &s.processes[i].trip
	t.orphan = true
	for k := range t.members {
		t.members[k].left = t.members[k].in
	}
	if !p.Rules.DeadEndFirst {
		return
	}
	for _, more := t.row(); more; _, more = t.row() {
		p.lock(s, i)
	}
	p.commitTrip(s, i)
}

// meet notes a fault of process i for the submitters whose work it has.
func (p *protocol) meet(s *state, i, k uint8) {
	b := &s.submitters[k]
	b.met = b.met || s.processes[i].calls[k].pc != idle || b.locked == i+1
}

// freeze stops process i until its leases have expired. It may just have sent half of a transaction
// that goes alone.
func (p *protocol) freeze(s state, i uint8, out emit) {
	x := &s.processes[i]
	if s.left.Freezes == 0 || x.calls == [maxSubmitters]call{} {
		return
	}
	stop := func(e step, to state) {
		to.left.Freezes--
		to.processes[i].frozen = true
		for k := range uint8(maxSubmitters) {
			p.meet(&to, i, k)
			to.processes[i].trip.members[k].stale = to.processes[i].trip.members[k].result == taken
			if b := &to.submitters[k]; b.owner == i+1 {
				b.expired = true
			}
		}
		out(e, to)
	}
	stop(step{op: opFreeze, process: i}, s)
	for k := range uint8(maxSubmitters) {
		if of := tripOf(x.calls[k].pc); x.trip.kind == noTrip && of != noTrip && s.submitters[k].locked == nobody {
			p.begin(s, i, of, 1<<k, false, step{op: opFreezeWithin, process: i}, stop)
		}
	}
}

// leave ends an invocation whose caller leaves a round trip at its deadline.
func (p *protocol) leave(s state, i uint8, out emit) {
	if s.left.Leavers == 0 {
		return
	}
	s.left.Leavers--
	for k := range uint8(maxSubmitters) {
		if s.processes[i].calls[k].pc != inTrip {
			continue
		}
		to := s
		p.meet(&to, i, k)
		to.processes[i].trip.members[k].left = true
		if p.Rules.LeaverIsRetried {
			to.retry(i, k)
		} else {
			to.end(i, k)
		}
		out(step{op: opLeave, process: i, submitter: k}, to)
	}
}
