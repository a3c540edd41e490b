package model

import "fmt"

// protocol is the transition system.
type protocol struct {
	Rules
	Budget
}

type emit func(step string, to state)

func (p protocol) start() state {
	s := state{left: p.Budget}
	for n := range s.slots {
		s.slots[n].holder, s.slots[n].mined = nobody, nobody
	}
	for i := range s.queued {
		s.queued[i] = int8(i) < p.Intents
	}
	for i := range s.owners {
		s.owners[i].gone = int8(i) >= p.Owners
	}
	return s
}

func (p protocol) next(s state, out func(string, state)) {
	for i := range p.Workers {
		p.stepWorker(s, i, out)
	}
	for i := range s.owners {
		p.stepOwner(s, party(i), out)
		p.deliverMarks(s, party(i), out)
	}
	p.stepCancel(s, out)
	p.stepChain(s, out)
}

// fence gives the lease to a new holder: the plans of all workers except worker i can no longer be
// written.
func (p protocol) fence(s *state, but int8) {
	if !p.Fenced {
		return
	}
	for i := range s.workers {
		if int8(i) != but {
			s.workers[i] = plan{}
		}
	}
}

// stepWorker is a step of worker i: it loads and decides, or writes, or crashes in between.
func (p protocol) stepWorker(s state, i int8, out emit) {
	w := s.workers[i]
	if w.kind != rest {
		if s.left.Crashes > 0 {
			to := s
			to.left.Crashes--
			to.workers[i] = plan{}
			out(fmt.Sprintf("worker %d dies before its write", i), to)
		}
		to := s
		to.workers[i] = plan{}
		p.write(to, i, w, out)
		return
	}
	for _, decided := range p.plans(s) {
		to := s
		p.fence(&to, i)
		to.workers[i] = decided
		out(fmt.Sprintf("worker %d loads: %s", i, decided), to)
	}
}

func (w plan) String() string {
	switch w.kind {
	case allocate:
		return fmt.Sprintf("%s shall have nonce %d, from %s", w.whose, w.nonce, w.from)
	case order:
		return fmt.Sprintf("a placeholder for nonce %d of %s", w.nonce, w.whose)
	case recycle:
		return fmt.Sprintf("nonce %d of %s is free", w.nonce, w.whose)
	}
	return "nothing"
}

// plans are the possible decisions after a load.
func (p protocol) plans(s state) (all []plan) {
	for w := owner0; w <= owner1; w++ {
		o := s.owners[w]
		waits := o.res == reserved || o.res == recyclable && p.ReleasedTimesOut
		if !waits || !o.over || s.slots[o.nonce].ordered {
			continue
		}
		kind := order
		if !p.TimeOutFills && o.res == reserved {
			kind = recycle
		}
		all = append(all, plan{kind: kind, whose: w, nonce: o.nonce})
	}
	if n, from, ok := s.nextSlot(); ok {
		for w := intent0; w <= intent1; w++ {
			if s.queued[w-intent0] {
				all = append(all, plan{allocate, w, from, n})
				break
			}
		}
	}
	return all
}

// write carries out a worker's plan.
func (p protocol) write(s state, i int8, w plan, out emit) {
	step := fmt.Sprintf("worker %d writes: %s", i, w)
	at := &s.slots[w.nonce]
	o := &s.owners[min(w.whose, owner1)]
	switch w.kind {
	case order:
		at.ordered = true
		at.stored |= 1 << filler
	case recycle:
		o.res, o.over = recyclable, false
	case allocate:
		p.bind(&s, w)
	}
	out(step, s)
}

// bind gives an intent its nonce and stores its bytes.
func (p protocol) bind(s *state, w plan) {
	stillQueued := s.queued[w.whose-intent0]
	if p.IntentFirst && !stillQueued {
		return
	}
	if w.from != nobody {
		s.owners[w.from].res = passedOn
		s.slots[w.nonce].holder = nobody
	}
	if w.from == nobody && stillQueued {
		s.next = max(s.next, w.nonce+1)
	}
	if !stillQueued {
		return
	}
	s.queued[w.whose-intent0] = false
	s.slots[w.nonce].holder = w.whose
	s.slots[w.nonce].stored |= 1 << w.whose
}

// stepOwner is a step of an owner. It reserves a nonce, signs and marks it used, releases it,
// sends its bytes itself, or stops.
func (p protocol) stepOwner(s state, w party, out emit) {
	o := s.owners[w]
	switch {
	case o.gone:
		return
	case o.res == unasked:
		if n, from, ok := s.nextSlot(); ok {
			to := s
			p.fence(&to, -1)
			p.reserve(&to, w, n, from)
			out(fmt.Sprintf("%s has nonce %d reserved, from %s", w, n, from), to)
		}
	case !o.signed:
		to := s
		to.owners[w].signed, to.owners[w].used = true, 1
		out(fmt.Sprintf("%s signs for nonce %d, and marks it used", w, o.nonce), to)
	case s.left.Rogues > 0 && !o.rogue && o.back == 0 && o.res != recyclable && o.res != passedOn:
		to := s
		to.left.Rogues--
		to.owners[w].rogue = true
		to.slots[o.nonce].sent |= 1 << w
		out(fmt.Sprintf("%s sends what it signed for nonce %d", w, o.nonce), to)
	}
	if o.res != unasked && !o.rogue && o.back == 0 {
		to := s
		to.owners[w].back, to.owners[w].gone = 1, true
		out(fmt.Sprintf("%s gives nonce %d back", w, o.nonce), to)
	}
	to := s
	to.owners[w].gone = true
	out(fmt.Sprintf("%s is never heard of again", w), to)
}

// reserve is atomic: an owner that does not receive the answer is one that stops.
func (p protocol) reserve(s *state, w party, n int8, from party) {
	if from != nobody {
		s.owners[from].res = passedOn
	}
	s.next = max(s.next, n+1)
	s.slots[n].holder = w
	s.owners[w].res, s.owners[w].nonce = reserved, n
}

// deliverMarks delivers or loses an owner's mark, or lets its reservation expire.
func (p protocol) deliverMarks(s state, w party, out emit) {
	o := s.owners[w]
	if (o.res == reserved || o.res == recyclable) && !o.over {
		to := s
		to.owners[w].over = true
		out(fmt.Sprintf("the time of %s is over", w), to)
	}
	if o.used > 0 {
		p.deliver(s, w, "used", func(s *state) *int8 { return &s.owners[w].used }, p.markUsed, out)
	}
	if o.back > 0 {
		p.deliver(s, w, "recyclable", func(s *state) *int8 { return &s.owners[w].back }, p.markRecyclable, out)
	}
}

func (p protocol) deliver(s state, w party, what string, wire func(*state) *int8, do func(*state, party), out emit) {
	step := fmt.Sprintf("the mark %s of %s arrives", what, w)
	if s.left.Twice > 0 {
		to := s
		to.left.Twice--
		p.fence(&to, -1)
		do(&to, w)
		out(step+", and will again", to)
	}
	if s.left.Losses > 0 {
		to := s
		to.left.Losses--
		*wire(&to)--
		out(fmt.Sprintf("the mark %s of %s is lost", what, w), to)
	}
	*wire(&s)--
	p.fence(&s, -1)
	do(&s, w)
	out(step, s)
}

// acceptsMark reports whether a mark of w is accepted, and for which reservation.
func (p protocol) acceptsMark(s *state, w party) (of party, ok bool) {
	o := s.owners[w]
	if p.OwnersOnly {
		return w, o.res == reserved && !o.over && !s.slots[o.nonce].ordered
	}
	of = s.slots[o.nonce].holder
	return of, of <= owner1 && s.owners[of].res == reserved
}

func (p protocol) markUsed(s *state, w party) {
	at := &s.slots[s.owners[w].nonce]
	if !p.StoredFirst {
		at.sent |= 1 << w
	}
	if of, ok := p.acceptsMark(s, w); ok {
		s.owners[of].res = used
		at.stored |= 1 << w
	}
}

func (p protocol) markRecyclable(s *state, w party) {
	of, ok := p.acceptsMark(s, w)
	if !p.UnsignedOnly && s.owners[w].res == used && !s.acknowledged(s.owners[w].nonce) {
		of, ok = w, true
	}
	if ok {
		s.owners[of].res, s.owners[of].gone = recyclable, true
	}
}

// stepCancel cancels a queued intent. It needs no lease, only the intent's row.
func (p protocol) stepCancel(s state, out emit) {
	for i, queued := range s.queued {
		if queued && s.left.Cancels > 0 {
			to := s
			to.left.Cancels--
			to.queued[i] = false
			out(fmt.Sprintf("%s is cancelled", intent0+party(i)), to)
		}
	}
}

// stepChain sends stored bytes in nonce order, and consumes the lowest nonce.
func (p protocol) stepChain(s state, out emit) {
	for n := range s.next {
		at := s.slots[n]
		for w := owner0; w <= filler; w++ {
			if w.isIn(at.stored) && !w.isIn(at.sent) && at.mined == nobody {
				to := s
				to.slots[n].sent |= 1 << w
				out(fmt.Sprintf("nonce %d is sent, signed by %s", n, w), to)
			}
		}
		if !s.acknowledged(n) {
			break
		}
	}
	n := s.lowest()
	for w := owner0; n < s.next && w <= filler; w++ {
		if w.isIn(s.slots[n].sent) {
			to := s
			to.slots[n].mined = w
			out(fmt.Sprintf("nonce %d is consumed by %s", n, w), to)
		}
	}
}
