// Package model checks the protocol of internal transfers, and the seam to the
// transaction manager that payouts go through, by walking every interleaving of a
// few workers with crashes, lost answers, calls that arrive late or twice, commits
// without an answer, and operators.
//
// There is one transfer. A step is what is atomic outside: one compare-and-set, one
// call that is sent, one call that a ledger carries out, one act of an operator. A
// call that was sent stays on the wire until it is carried out, however much later,
// whoever waits for it. Time has no number: a worker may give up waiting at any
// moment that its budget allows, and the sweep drives whatever is not at its end.
//
// Two promises are judged. In no state is money made, lost or given back that was
// paid out; and from every state there is a way to an end.
package model
