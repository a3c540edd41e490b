package model

import "cmp"

// row is the transfer's state.
type row uint8

const (
	initial row = iota
	sourcePending
	sourceDone
	targetPending
	committed
	failed
	compensating
	rolledBack
)

func (r row) String() string {
	return [...]string{"INIT", "SOURCE_PENDING", "SOURCE_DONE", "TARGET_PENDING", "COMMITTED", "FAILED", "COMPENSATING", "ROLLED_BACK"}[r]
}

func (r row) terminal() bool { return r == committed || r == failed || r == rolledBack }

// op is an operation of a ledger.
type op uint8

const (
	withdraw op = iota
	deposit
	refund
	ops
)

func (o op) String() string { return [...]string{"withdraw", "deposit", "refund"}[o] }

// awaits returns the operation whose answer the state waits for; ops if there is none.
func (r row) awaits() op {
	switch r {
	case sourcePending:
		return withdraw
	case targetPending:
		return deposit
	case compensating:
		return refund
	}
	return ops
}

// answer is a ledger's answer, returned or stored.
type answer uint8

const (
	nothing answer = iota // stored: none; answered: unknown
	success
	refused
)

func (a answer) String() string { return [...]string{"unknown", "success", "refused"}[a] }

// pc is the next step of a worker.
type pc uint8

const (
	idle    pc = iota
	begin      // has loaded INIT, is about to compare and set
	ask        // is about to send its call
	wait       // has sent it
	got        // has its answer, is about to record it
	advance    // has loaded SOURCE_DONE
)

// worker drives the transfer. sees is the state that it last read.
type worker struct {
	pc   pc
	sees row
	op   op
	said answer
}

// state is one state of the model. It is comparable and has no pointer.
type state struct {
	row     row
	end     row         // the first terminal state that was stored; initial: none
	stored  [ops]answer // by the ledgers
	effects [ops]uint8  // what was applied to the balances
	wire    [ops]uint8  // calls on their way
	workers [2]worker
	short   bool // the source would refuse a withdrawal now
	closed  bool // the target would refuse a deposit now
	frozen  bool // the source's account is frozen
	old     bool
	left    Budget
}

// maxOnWire bounds the calls of one kind on the wire.
const maxOnWire = 2

// canonical sorts the workers, which have no identity.
func (s state) canonical() state {
	a, b := s.workers[0], s.workers[1]
	if cmp.Or(cmp.Compare(a.pc, b.pc), cmp.Compare(a.sees, b.sees), cmp.Compare(a.op, b.op), cmp.Compare(a.said, b.said)) > 0 {
		s.workers[0], s.workers[1] = b, a
	}
	return s
}

// set writes the row.
func (s *state) set(r row) {
	s.row = r
	if s.end == initial && r.terminal() {
		s.end = r
	}
}

// wrong names the property that the state violates, or "".
func (s state) wrong() string {
	w, d, r := s.effects[withdraw], s.effects[deposit], s.effects[refund]
	switch {
	case w > 1 || d > 1 || r > 1:
		return "an effect twice"
	case d > 0 && r > 0:
		return "credited and given back"
	case d+r > w:
		return "money from nothing"
	case s.end != initial && s.row != s.end:
		return "a final state changed"
	}
	return s.row.contradiction(w, d, r)
}

// contradiction names the final state that the counted effects contradict, or "".
func (r row) contradiction(withdraws, deposits, refunds uint8) string {
	switch {
	case r == failed && withdraws+deposits+refunds > 0:
		return "an effect under FAILED"
	case r == committed && (withdraws != 1 || deposits != 1):
		return "COMMITTED without its effects"
	case r == rolledBack && (withdraws != 1 || refunds != 1):
		return "ROLLED_BACK without its effects"
	}
	return ""
}

// describe formats a state that violates a property.
func (s state) describe() string {
	return line("%s; done: withdraw %d, deposit %d, refund %d; stored: withdraw %s, deposit %s, refund %s", s.row,
		s.effects[withdraw], s.effects[deposit], s.effects[refund], s.stored[withdraw], s.stored[deposit], s.stored[refund])
}
