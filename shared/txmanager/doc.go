// Package txmanager has the nouns, states and ports of the transaction manager. It carries each
// intent to a final state on chain, with one contiguous sequence of nonces for each submitter. Its
// packages import downward only, in the order txmanager, gas, rules, session, quorum, protect,
// reservation, worker: start reading at ServeSubmitter in worker.
//
// Only stored bytes are broadcast, and only the lease holder can store bytes. The database binds a
// nonce to one transaction, so a former lease holder can only send bytes whose nonce the chain
// consumes once. Every outside call ends done, refused or unknown ([Outcome]). An unknown outcome,
// such as a missing receipt, makes nothing final and frees no nonce.
package txmanager
