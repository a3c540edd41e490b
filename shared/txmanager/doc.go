// Package txmanager carries each managed transaction from an accepted intent to a final state on
// chain, with one contiguous sequence of nonces for each submitter. It declares the ports that it
// needs ([Store], [ChainConnector], [Signer], [TaskEnqueuer]) and imports no database driver,
// cloud SDK or HTTP. Packages functions, shared/store, shared/chain/..., shared/signer and
// shared/tasks import it. Start reading at [Worker.ServeSubmitter], then follow iterate in
// session.go.
//
// Only stored bytes are broadcast, and only the lease holder can store bytes. The database binds a
// nonce to one transaction, so a former lease holder can only send bytes whose nonce the chain
// consumes once. Every outside call ends done, refused or unknown ([Outcome]). An unknown outcome,
// such as a missing receipt, makes nothing final and frees no nonce.
package txmanager
