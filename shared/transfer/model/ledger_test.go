package model

// arrive carries out a call at its ledger. The answer reaches a waiting worker or is lost. The
// call may stay on the wire and arrive once more.
func (p *protocol) arrive(s state, o op, out emit) {
	for _, again := range []bool{false, true} {
		to := s
		if again {
			if to.left.Duplicates == 0 {
				continue
			}
			to.left.Duplicates--
		} else {
			to.wire[o]--
		}
		said := p.carryOut(&to, o)
		step := line("%s is carried out: %s", o, said)
		if again {
			step += ", and will arrive again"
		}
		delivered := false
		for i := range p.Budget.Workers {
			if w := to.workers[i]; w.pc == wait && w.op == o {
				delivered = true
				p.answer(to, i, said, step, out)
			}
		}
		if !delivered {
			out(step+"; nobody waits for it", to)
		}
	}
}

// answer delivers an answer to worker i.
func (p *protocol) answer(s state, i uint8, said answer, step string, out emit) {
	if s.left.Losses > 0 {
		lost := s
		lost.left.Losses--
		p.noAnswer(&lost, i, step+"; the answer is lost: a worker waits no longer", out)
	}
	s.workers[i].pc, s.workers[i].said = got, said
	out(step, s)
}

// carryOut applies a call to the ledger and returns its answer.
func (p *protocol) carryOut(s *state, o op) answer {
	if !p.Rules.KeyedByOp && p.processed(s, o) {
		return success
	}
	if p.Rules.Once && s.stored[o] == success || s.stored[o] == refused {
		return s.stored[o]
	}
	if o == refund && s.stored[withdraw] != success && p.Rules.KeyedByOp {
		return nothing
	}
	if p.refuses(s, o) {
		if p.Rules.StoreRefusals {
			s.stored[o] = refused
		}
		return refused
	}
	s.stored[o] = success
	s.effects[o] = min(s.effects[o]+1, 2)
	return success
}

// refuses reports whether the user's account refuses the op.
func (p *protocol) refuses(s *state, o op) bool {
	switch o {
	case withdraw:
		return s.short
	case deposit:
		return s.closed
	default:
		return s.frozen && !p.Rules.RefundNeverRefused
	}
}

// processed reports whether the op's ledger has a stored answer for the req_id.
func (p *protocol) processed(s *state, o op) bool {
	if o == deposit {
		return s.stored[deposit] != nothing
	}
	return s.stored[withdraw] != nothing || s.stored[refund] != nothing
}

// resolve returns the stored answer, or stores a permanent refusal.
func (p *protocol) resolve(s *state, o op) answer {
	if s.stored[o] == nothing && o != refund {
		if p.Rules.ResolveStores {
			s.stored[o] = refused
		}
		return refused
	}
	return s.stored[o]
}
