// Package transfer is the domain of internal transfers: a user's money moves from
// one ledger to another that shares no transaction with it.
//
// A transfer's row goes from state to state by compare-and-set, along one table of
// transitions, and the state that says "about to be called" is stored before the
// call. A ledger's answer is a success, a stored refusal, or unknown; unknown never
// ends anything and never gives money back. The package knows no database and no
// network: it declares the ports that it needs.
//
// Two arguments carry its correctness.
//
// Persist before call: a ledger is called only by whoever has read the state that
// allows the call from a committed row. A worker that dies leaves a row that says
// what may have happened, and anyone asks again.
//
// Unknown is never failure: only a refusal that the ledger has stored for (req_id,
// op) fails a transfer or gives money back. A ledger does each operation at most
// once however often it is asked, so asking again, by any number of workers, is
// always right, and giving up never is.
//
// The way of one request: [Coordinator.Submit] stores it or finds what is stored
// ([Book.Create]), then drives it; [Coordinator.Drive] does the same for a task or
// the sweep. Each round is one call and one write (drive.go, settle.go). Where the
// answer is unknown the transfer stays as it is, and [Book.Postpone] plans the next
// attempt in the database's time.
package transfer
