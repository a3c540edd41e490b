// Package model checks reservations together with intents. It visits every interleaving of two
// workers, two reservations and two intents of one submitter. That includes crashes, expiries,
// cancels, lost, late and repeated marks, and owners who send their bytes themselves.
//
// Each atomic operation is one step: a load, a fenced write, the arrival of a mark, a send, a
// nonce that the chain consumes. Any step can occur between a load and its write. Time has no
// number: a reservation can expire at any moment. Package shared/lease/model shows that a lease
// fences; here it is a rule.
//
// Two properties are checked. First, every allocated nonce always has a holder, has versions of at
// most one payload, and is consumed only by its holder's bytes or a placeholder. Second, from
// every state a terminal state can be reached, in which the chain has consumed every allocated
// nonce. Only the tests of this package import it; start reading at [Check].
package model
