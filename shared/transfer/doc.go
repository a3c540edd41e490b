// Package transfer is the domain of internal transfers: a user's money moves from one ledger to
// another, and the two share no database transaction.
//
// A transfer's row changes its state by compare-and-set along one table of transitions. The state
// that means "about to be called" is stored before the call. A ledger's answer is a success, a
// stored refusal, or unknown. An unknown answer never ends a transfer and never refunds money.
// The package imports no database and no network code: it declares the ports that it needs.
//
// Two rules make it correct.
//
// Persist before call: a worker calls a ledger only after it has read, from a committed row, the
// state that allows the call. If the worker dies, the row still says that the call may have
// happened, and any worker can repeat it.
//
// Unknown is never failure: only a refusal that the ledger has stored for (req_id, op) fails or
// refunds a transfer. A ledger carries out each operation at most once, however often it is
// called. So any number of workers can repeat a call. Giving up could lose or double the money.
//
// The path of a request: [Coordinator.Submit] stores it or finds the stored one ([Book.Create]),
// then drives it. [Coordinator.Drive] does the same for a task or the sweep. Each iteration is
// one call and one write (drive.go, settle.go). After an unknown answer the state stays, and
// [Book.Postpone] plans the next attempt by the database's clock.
package transfer
