package model

// protocol is the machine that [explore] searches: the rules of a run, and its steps.
type protocol struct {
	Rules  Rules
	Budget Budget
}

// emit takes one enabled step and the state that it leads to.
type emit = func(string, state)

func (p *protocol) start() state         { return state{left: p.Budget} }
func (p *protocol) wrong(s state) string { return s.wrong() }
func (p *protocol) ended(s state) bool   { return s.row.terminal() }

func (p *protocol) next(s state, out emit) {
	ordered := out
	if p.Budget.Workers > 1 {
		ordered = func(step string, to state) { out(step, to.canonical()) }
	}
	for i := range p.Budget.Workers {
		p.worker(s, i, ordered)
	}
	for o := range ops {
		if s.wire[o] > 0 {
			p.arrive(s, o, ordered)
		}
	}
	p.world(s, ordered)
	p.operator(s, ordered)
}

// worker emits the next step of worker i, and its crash.
func (p *protocol) worker(s state, i uint8, out emit) {
	w := &s.workers[i]
	if s.left.Crashes > 0 && w.pc != idle {
		to := s
		to.left.Crashes--
		to.workers[i] = worker{}
		out("a worker dies", to)
	}
	switch w.pc {
	case idle:
		p.load(s, i, out)
	case begin:
		to := sourcePending
		if s.old {
			to = failed
		}
		p.write(s, i, initial, to, out)
	case advance:
		p.write(s, i, sourceDone, targetPending, out)
	case ask:
		if s.wire[w.op] < maxOnWire {
			s.wire[w.op]++
			w.pc = wait
			out(line("a worker that sees %s sends %s", w.sees, w.op), s)
		}
	case wait:
		p.giveUp(s, i, out)
	case got:
		p.record(s, i, out)
	}
}

// load reads the row and plans the step of its state.
func (p *protocol) load(s state, i uint8, out emit) {
	if s.row.terminal() {
		return
	}
	s.workers[i] = p.planned(s.row)
	out(line("a worker loads %s", s.row), s)
}

func (p *protocol) planned(r row) worker {
	switch {
	case r == initial && !p.Rules.PersistFirst:
		return worker{pc: ask, sees: r, op: withdraw}
	case r == initial:
		return worker{pc: begin, sees: r}
	case r == sourceDone:
		return worker{pc: advance, sees: r}
	case r.awaits() != ops:
		return worker{pc: ask, sees: r, op: r.awaits()}
	}
	return worker{}
}

// giveUp makes a worker stop waiting. Its call can still arrive.
func (p *protocol) giveUp(s state, i uint8, out emit) {
	if s.left.Timeouts == 0 {
		return
	}
	s.left.Timeouts--
	p.noAnswer(&s, i, "a worker waits no longer", out)
}

// noAnswer makes a worker continue without an answer.
func (p *protocol) noAnswer(s *state, i uint8, step string, out emit) {
	w := &s.workers[i]
	if !p.Rules.UnknownStays {
		w.pc, w.said = got, refused
		out(line("%s, and takes the %s for refused", step, w.op), *s)
		return
	}
	*w = worker{}
	out(step, *s)
}

// record applies the answer to the transfer.
func (p *protocol) record(s state, i uint8, out emit) {
	w := s.workers[i]
	to := [ops][3]row{
		withdraw: {success: targetPending, refused: failed},
		deposit:  {success: committed, refused: compensating},
		refund:   {success: rolledBack, refused: initial},
	}[w.op][w.said]
	if to == initial { // unknown, or a refused refund: the state stays
		s.workers[i] = worker{}
		out(line("a worker leaves it: %s %s", w.op, w.said), s)
		return
	}
	p.write(s, i, w.sees, to, out)
}

// write is a compare-and-set. A commit may get no answer, whether it happened or not. Then the
// row is loaded again, or, without the rule ReadBack, the worker assumes that it happened.
func (p *protocol) write(s state, i uint8, from, to row, out emit) {
	if s.row != from && p.Rules.Compare {
		s.workers[i] = worker{}
		out(line("a worker finds %s where it saw %s, and stops", s.row, from), s)
		return
	}
	for _, happens := range []bool{true, false} {
		if s.left.Cuts == 0 {
			break
		}
		cut := s
		cut.left.Cuts--
		if happens {
			cut.set(to)
		}
		cut.workers[i] = worker{}
		if !p.Rules.ReadBack {
			cut.workers[i] = p.planned(to)
		}
		out(line("a worker writes %s to %s; no answer, and it happened: %t", from, to, happens), cut)
	}
	s.set(to)
	s.workers[i] = p.planned(to)
	out(line("a worker writes %s to %s", from, to), s)
}

// world emits changes of the surroundings: time and accounts.
func (p *protocol) world(s state, out emit) {
	if s.left.Expiries > 0 {
		to := s
		to.left.Expiries--
		to.old = true
		out("the transfer is older than initTimeout", to)
	}
	if s.left.Changes == 0 {
		return
	}
	if s.left.Changes != Always {
		s.left.Changes--
	}
	short, closed, frozen := s, s, s
	short.short, closed.closed, frozen.frozen = !s.short, !s.closed, !s.frozen
	out("the balance falls short, or is filled up", short)
	out("the target's account closes, or opens", closed)
	out("the source's account is frozen, or freed", frozen)
}

// operator emits operators' acts: cancel in INIT, and resolve.
func (p *protocol) operator(s state, out emit) {
	if s.left.Cancels > 0 && s.row == initial {
		to := s
		to.left.Cancels--
		to.set(failed)
		out("an operator cancels", to)
	}
	o := s.row.awaits()
	if s.left.Resolves == 0 || o == ops {
		return
	}
	for i := range p.Budget.Workers {
		if s.workers[i].pc != idle {
			continue
		}
		to := s
		to.left.Resolves--
		said := p.resolve(&to, o)
		to.workers[i] = worker{pc: got, sees: s.row, op: o, said: said}
		out(line("an operator resolves the %s: %s", o, said), to)
		return
	}
}
