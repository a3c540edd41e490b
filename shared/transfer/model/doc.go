// Package model checks the protocol of internal transfers, and the interface between payouts and
// the transaction manager. It searches every interleaving of a few workers with crashes, lost
// answers, calls that arrive late or twice, commits without an answer, and operators.
//
// There is one transfer. A step is an atomic action of the real system: one compare-and-set, one
// call that is sent, one call that a ledger carries out, one act of an operator. A call that was
// sent stays on the wire until it is carried out, at any later time, even if its worker no longer
// waits. Time has no number: a worker can stop waiting at any moment that its budget allows, and
// the sweep drives each transfer that is not terminal.
//
// Two properties are checked. No state creates money, loses it, or refunds a payment that was
// made. And a terminal state can be reached from every state.
package model
