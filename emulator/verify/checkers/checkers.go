// Package checkers checks an episode of faults against the promises of the transaction manager. It
// reads the chain block by block and the whole history in the database. It uses no report of the
// system about itself, and shares with it only the table of legal transitions.
package checkers

import (
	"context"

	"github.com/fencepost/fencepost/emulator/verify/checkers/promise"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Run describes a system from its start until now.
type Run struct {
	Database   string                // the database's URL, of a role that may read every table
	RPC        string                // the URL of a node of the submitters' chain
	Submitters []txmanager.Submitter // registered, all of the node's chain

	// Foreign lists the nonces that the test itself used with a submitter's key. The chain may have
	// any transaction there.
	Foreign map[txmanager.Submitter][]uint64

	// Lost lists the hashes of transactions that a lost database had signed and its backup does not
	// know. The chain may have them.
	Lost map[string]bool

	// Settled means that the faults have stopped and everything should be terminal. Without it the
	// system can be working while it is read, if finality takes at least one confirmation.
	Settled bool
}

// Violation is one broken promise; TxID identifies a transaction.
type Violation = promise.Violation

// Checker checks the evidence of each account against one promise.
type Checker = promise.Checker[*Evidence]

// reporter takes a violation of one account; txID may be "".
type reporter func(txID, format string, args ...any)

// of returns a checker that runs check on every account, in the order of the episode.
func of(name, words string, check func(*account, reporter)) Checker {
	return Checker{Name: name, Promise: words, Find: func(e *Evidence, report promise.Reporter) {
		for _, a := range e.accounts {
			check(a, func(txID, format string, args ...any) { report(string(a.submitter), txID, format, args...) })
		}
	}}
}

// All lists every checker in the order in which they report.
func All() []Checker {
	return []Checker{
		of("chain-nonces", "the chain has the nonces of each submitter from its start on, without a gap, one transaction each; in the end, every allocated one", chainNonces),
		of("mined-is-stored", "the transaction that the chain has at a nonce is a stored version of the transaction bound to that nonce", minedIsStored),
		of("one-effect", "a requestId has at most one effect at any time; in the end exactly one, the intent's own, where it is CONFIRMED, and else none", oneEffect),
		of("ends-as-on-chain", "a final state agrees with the canonical chain, in the recorded block", endsAsOnChain),
		of("legal-history", "a history begins with QUEUED, has legal changes only, none after a final state, and ends at the recorded state", legalHistory),
		of("token-order", "no change is written under an older fencing token than one before it", tokenOrder),
		of("binding", "a nonce is bound once, to one transaction, for ever; those bound run from the start to the cursor without a gap", binding),
		of("queue-order", "no intent gets a nonce before an earlier one of the queue, but other callers' intents may pass a deferred one", queueOrder),
		of("cursor", "the cursor names the lowest open nonce and is IDLE only without one; it shows PROTECT while an incident is open", cursor),
		of("versions", "every stored version decodes to a transaction of its submitter, chain, nonce and hash", versions),
		of("settled", "once faults have stopped everything ends: no unfinished transaction, no lease held, no rerun flag left", settled),
	}
}

// Check runs every checker. An error means that the episode could not be read, which is no verdict.
func Check(ctx context.Context, e Run) ([]Violation, error) {
	return promise.Check(ctx, e, ReadEvidence, All())
}

// Report formats the violations for a reader: their number, then one a line.
func Report(all []Violation) string { return promise.Report(all, "tx") }
