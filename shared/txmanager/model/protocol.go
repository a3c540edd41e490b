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
	for n := range s.seats {
		s.seats[n].holder, s.seats[n].mined = nobody, nobody
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
		p.work(s, i, out)
	}
	for i := range s.owners {
		p.own(s, who(i), out)
		p.arrive(s, who(i), out)
	}
	p.cancel(s, out)
	p.chain(s, out)
}

// fence is a lease taken by somebody else than worker i: what others have loaded is not
// written any more.
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

// work is a step of worker i: it loads and decides, or writes, or dies in between.
func (p protocol) work(s state, i int8, out emit) {
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

// plans are what a load can lead to.
func (p protocol) plans(s state) (all []plan) {
	for w := owner0; w <= owner1; w++ {
		o := s.owners[w]
		waits := o.res == reserved || o.res == recyclable && p.GivenBackTimesOut
		if !waits || !o.over || s.seats[o.nonce].ordered {
			continue
		}
		kind := order
		if !p.TimeOutFills && o.res == reserved {
			kind = recycle
		}
		all = append(all, plan{kind: kind, whose: w, nonce: o.nonce})
	}
	if n, from, ok := s.seat(); ok {
		for w := intent0; w <= intent1; w++ {
			if s.queued[w-intent0] {
				all = append(all, plan{allocate, w, from, n})
				break
			}
		}
	}
	return all
}

// write is what became of a plan.
func (p protocol) write(s state, i int8, w plan, out emit) {
	step := fmt.Sprintf("worker %d writes: %s", i, w)
	at := &s.seats[w.nonce]
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

// bind gives an intent its nonce, with its bytes.
func (p protocol) bind(s *state, w plan) {
	stillQueued := s.queued[w.whose-intent0]
	if p.TakerFirst && !stillQueued {
		return
	}
	if w.from != nobody {
		s.owners[w.from].res = passedOn
		s.seats[w.nonce].holder = nobody
	}
	if w.from == nobody && stillQueued {
		s.next = max(s.next, w.nonce+1)
	}
	if !stillQueued {
		return
	}
	s.queued[w.whose-intent0] = false
	s.seats[w.nonce].holder = w.whose
	s.seats[w.nonce].stored |= 1 << w.whose
}

// own is a step of an owner: it asks for a nonce, signs and hands in, gives back, sends
// by itself, or is never heard of again.
func (p protocol) own(s state, w who, out emit) {
	o := s.owners[w]
	switch {
	case o.gone:
		return
	case o.res == unasked:
		if n, from, ok := s.seat(); ok {
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
		to.seats[o.nonce].sent |= 1 << w
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

// reserve is atomic: the owner that does not hear of it is one that is never heard of.
func (p protocol) reserve(s *state, w who, n int8, from who) {
	if from != nobody {
		s.owners[from].res = passedOn
	}
	s.next = max(s.next, n+1)
	s.seats[n].holder = w
	s.owners[w].res, s.owners[w].nonce = reserved, n
}

// arrive is a mark of an owner that arrives, or never does; and its time.
func (p protocol) arrive(s state, w who, out emit) {
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

func (p protocol) deliver(s state, w who, what string, wire func(*state) *int8, do func(*state, who), out emit) {
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

// counts says that a mark of w is one that its owner may still make, and about which
// reservation it is.
func (p protocol) counts(s *state, w who) (of who, ok bool) {
	o := s.owners[w]
	if p.OwnersOnly {
		return w, o.res == reserved && !o.over && !s.seats[o.nonce].ordered
	}
	of = s.seats[o.nonce].holder
	return of, of <= owner1 && s.owners[of].res == reserved
}

func (p protocol) markUsed(s *state, w who) {
	at := &s.seats[s.owners[w].nonce]
	if !p.StoredFirst {
		at.sent |= 1 << w
	}
	if of, ok := p.counts(s, w); ok {
		s.owners[of].res = used
		at.stored |= 1 << w
	}
}

func (p protocol) markRecyclable(s *state, w who) {
	of, ok := p.counts(s, w)
	if !p.UnsignedOnly && s.owners[w].res == used && !s.acknowledged(s.owners[w].nonce) {
		of, ok = w, true
	}
	if ok {
		s.owners[of].res, s.owners[of].gone = recyclable, true
	}
}

// cancel takes an intent out of the queue: no lease, only its row.
func (p protocol) cancel(s state, out emit) {
	for i, queued := range s.queued {
		if queued && s.left.Cancels > 0 {
			to := s
			to.left.Cancels--
			to.queued[i] = false
			out(fmt.Sprintf("%s is cancelled", intent0+who(i)), to)
		}
	}
}

// chain sends what is stored, in the order of nonces, and consumes the lowest.
func (p protocol) chain(s state, out emit) {
	for n := range s.next {
		at := s.seats[n]
		for w := owner0; w <= filler; w++ {
			if w.of(at.stored) && !w.of(at.sent) && at.mined == nobody {
				to := s
				to.seats[n].sent |= 1 << w
				out(fmt.Sprintf("nonce %d is sent, signed by %s", n, w), to)
			}
		}
		if !s.acknowledged(n) {
			break
		}
	}
	n := s.lowest()
	for w := owner0; n < s.next && w <= filler; w++ {
		if w.of(s.seats[n].sent) {
			to := s
			to.seats[n].mined = w
			out(fmt.Sprintf("nonce %d is consumed by %s", n, w), to)
		}
	}
}
