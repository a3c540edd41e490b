// Package nonce is the transaction manager: it carries managed transactions
// from an accepted intent to a final state on chain, one contiguous sequence of
// nonces for each submitter. It is pure: it declares the ports it needs and
// imports no driver, no SDK and no HTTP.
//
// Two arguments carry its correctness.
//
// Only persisted bytes are broadcast, and they are persisted only under the
// fence. A nonce is bound to one transaction once, by the database, for ever;
// whatever was signed for it is stored before it is sent. A former owner of the
// lease can then only send bytes whose nonce the chain takes once.
//
// Unknown is not failure. Every call to the outside ends done, refused or
// unknown ([Outcome]), and unknown never makes anything final and never frees a
// nonce. A missing receipt is unknown.
//
// The way of one invocation: [Worker.ServeSubmitter] takes the lease or leaves a wake
// mark; each round loads the submitter's [SubmitterState], asks the chain once ([ChainQuery]),
// judges what is tracked (judge.go), prepares and signs the head of the queue
// (prepare.go), writes all of it in one fenced [Commit], sends, records, and
// gives the lease back together with the last write. What is due next is read
// from the state that is left (due.go), never from what the invocation did.
package txmanager
