// Package txmanager carries each managed transaction from an accepted intent to a final state on
// chain. It allocates one contiguous sequence of nonces for each submitter. It declares the ports
// that it needs ([Store], [ChainConnector], [Signer], [TaskEnqueuer]) and imports no database
// driver, cloud SDK or HTTP. Packages functions, shared/store, shared/chain/..., shared/signer and
// shared/tasks import it. Start reading at [Worker.ServeSubmitter], then follow iterate in
// session.go.
//
// One invocation works as follows. It acquires the lease, or sets the rerun flag for the holder.
// Each iteration loads the [SubmitterState], queries the chain ([ChainQuery]) and evaluates the
// open transactions (evaluate.go). Then it plans and signs the head of the queue (allocate.go) and
// writes everything in one fenced [Commit]. Last it sends the stored bytes, records the answers,
// and releases the lease with the last write. The next task is planned from the state that remains
// (schedule.go).
//
// Two rules carry the correctness. First, only stored bytes are broadcast, and only the lease
// holder can store bytes. The database binds a nonce to a transaction once. A former lease holder
// can therefore only send bytes whose nonce the chain consumes once.
//
// Second, unknown is not failure. Every outside call ends done, refused or unknown ([Outcome]). An
// unknown outcome makes nothing final and frees no nonce. A missing receipt is unknown.
package txmanager
