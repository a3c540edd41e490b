package batches

import (
	"cmp"
	"math/bits"
	"slices"
)

// key is the form in which states are compared. Creates and processes have no identity, and tokens
// count from the oldest one that can still be used.
func (p *protocol) key(s state) state {
	if p.distinct {
		return s
	}
	for k := range s.submitters {
		s.renumber(k, s.oldest(k))
		slices.SortFunc(s.submitters[k].creators[:], func(a, b creator) int {
			return cmp.Or(cmp.Compare(a.pc, b.pc), cmp.Compare(a.token, b.token))
		})
	}
	if a, b := s.rank(0), s.rank(1); slices.Compare(b[:], a[:]) < 0 {
		s.swap()
	}
	return s
}

// oldest returns the lowest token of submitter k that can still name a task.
func (s *state) oldest(k int) uint8 {
	b := &s.submitters[k]
	low := b.token
	for _, c := range b.creators {
		if c.pc == createDone-1 {
			low = min(low, c.token)
		}
	}
	for i := range s.processes {
		x := &s.processes[i]
		switch c := &x.calls[k]; c.pc {
		case makeDelayed, nameAdvance, recheck:
			low = min(low, c.token)
		}
		switch m := &x.trip.members[k]; m.result {
		case held, released, skipped:
			low = min(low, m.token)
		}
	}
	return low
}

// renumber makes submitter k's token low 1. Of lower tokens it keeps only the number of waiting
// tasks.
func (s *state) renumber(k int, low uint8) {
	move := func(t *uint8) { *t = max(*t+1, low) - low }
	b := &s.submitters[k]
	move(&b.token)
	b.oldAdvances, b.oldWakes = b.advances.renumber(low), b.wakes.renumber(low)
	for i := range b.creators {
		move(&b.creators[i].token)
	}
	for i := range s.processes {
		x := &s.processes[i]
		move(&x.calls[k].token)
		move(&x.calls[k].job.token)
		move(&x.trip.members[k].token)
	}
}

// renumber shifts both sets and returns the number of tasks that wait below low.
func (n *names) renumber(low uint8) uint8 {
	old := bits.OnesCount16(n.waiting & (1<<low - 1))
	n.made, n.waiting = n.made>>low<<1, n.waiting>>low<<1
	return uint8(old)
}

// swap exchanges the two processes.
func (s *state) swap() {
	s.processes[0], s.processes[1] = s.processes[1], s.processes[0]
	other := [...]uint8{nobody, 2, 1, gone}
	for k := range s.submitters {
		b := &s.submitters[k]
		b.owner, b.locked = other[b.owner], other[b.locked]
	}
}

// rank packs process i; only equal processes have equal ranks.
func (s *state) rank(i uint8) (n [1 + maxSubmitters]uint64) {
	x := &s.processes[i]
	n[0] = pack(0, []uint8{uint8(x.trip.kind), x.trip.at}, x.frozen, x.trip.backward, x.trip.committed, x.trip.aborted, x.trip.orphan)
	for k := range x.calls {
		c, m, b := &x.calls[k], &x.trip.members[k], &s.submitters[k]
		own := pack(0, []uint8{uint8(c.pc), c.job.token, c.token, c.next, c.queued},
			c.job.wake, c.copy, c.alone, c.bad, c.release, b.owner == i+1, b.locked == i+1)
		n[k+1] = pack(own, []uint8{m.token, m.next, m.queued, uint8(m.result), m.seen}, m.in, m.left, m.release, m.stale)
	}
	return n
}

// pack appends numbers below 16, and bits.
func pack(n uint64, numbers []uint8, flags ...bool) uint64 {
	for _, x := range numbers {
		n = n<<4 | uint64(x)
	}
	for _, f := range flags {
		n <<= 1
		if f {
			n |= 1
		}
	}
	return n
}
