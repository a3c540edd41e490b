// Package transfer is the domain of internal transfers: a user's money moves from
// one ledger to another that shares no transaction with it.
//
// A transfer's row goes from state to state by compare-and-set, along one table of
// transitions, and the state that says "about to be called" is stored before the
// call. A ledger's answer is a success, a stored refusal, or unknown; unknown never
// ends anything and never gives money back. The package knows no database and no
// network: it declares the ports that it needs.
package transfer
