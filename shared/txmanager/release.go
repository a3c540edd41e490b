package txmanager

import (
	"errors"
	"fmt"
	"strings"
)

// ReleaseMode is how a submitter leaves PROTECT.
type ReleaseMode string

// Resume states that the observation was wrong. Resync accepts that nonces were lost.
const (
	Resume ReleaseMode = "resume"
	Resync ReleaseMode = "resync"
)

// ReleaseRequest is an operator's decision to end one PROTECT incident.
type ReleaseRequest struct {
	Incident      int // the incident that the operator reviewed; a later one stays open
	Mode          ReleaseMode
	By            string
	Reason        string
	Count         uint64                 // for resync: the accepted count of the chain
	Requests      map[uint64]string      // for resync: the request that each lost nonce was, or [NoRequest]
	Hashes        map[uint64]Hash        // for resync: the hash of the transaction that consumed each lost nonce, where no node finds it
	Executed      map[uint64]string      // for resync: how the operator knows that the named request was carried out, where no node can prove it
	Matching      bool                   // for resync: nonces without an entry in Requests get the requests that match one to one
	DryRun        bool                   // for resync: nothing is written
	Change        int64                  // set by the release: the [LostNonces.Change] that it was decided with
	Fill          *uint64                // for resync: the largest window that the submitter can have had; nil: the registered window, and only where [LostNonces] requires a fill
	Filling       *Filling               // for resync, set by the release: the nonces for placeholders; nil: none
	Untouched     bool                   // for resume: only if the chain's counts, mined and pending, equal the next nonce here
	EndedRequests []Naming               // for resync, set by the release: requests without a nonce that end with it
	ReorgedFinals []FinalTx              // for resync, set by the release: final transactions that the chain no longer has
	ConsumedBy    map[uint64]ConsumingTx // for resync, set by the release: the transactions that consumed nonces of intents
}

// Errors of [worker.Worker.ReleaseSubmitter]. After each, the incident is unchanged.
var (
	// ErrNotLeader reports that another invocation held the lease all the time.
	ErrNotLeader = errors.New("another invocation holds the lease of the submitter: try again")
	// ErrIncidentClosed reports that the named incident is not the open one.
	ErrIncidentClosed = errors.New("that PROTECT incident is not open")
	// ErrDatabaseNotAccepted reports a database that is not the last one written.
	ErrDatabaseNotAccepted = errors.New("the database is not the one written last, and no operator has accepted it: POST /admin/v1/database/accept first")
)

// FinalCountError reports a resync to a count other than the chain's final one.
type FinalCountError struct {
	Accepted, Next uint64
	Final          *uint64 // nil: the node has no finalized block
}

func (e FinalCountError) Error() string {
	if e.Final == nil {
		return "the node has no finalized block yet to prove a loss by; for a chain that has no such tag at all, set chain.finalizedTag to false"
	}
	return fmt.Sprintf("resync accepts the count %d; the chain's, at its finalized block, is %d, and the next nonce here is %d",
		e.Accepted, *e.Final, e.Next)
}

// AccountUsedError reports that the account's counts on the chain differ from its next nonce.
type AccountUsedError struct{ Latest, Pending, Next uint64 }

func (e AccountUsedError) Error() string {
	return fmt.Sprintf("the account has %d transactions mined and %d with those pending, and its next nonce here is %d", e.Latest, e.Pending, e.Next)
}

// ReleaseResult is the effect of a release.
type ReleaseResult struct {
	Displaced     []uint64  // nonces lost to foreign transactions, those of intents first
	ReorgedFinals []FinalTx // final transactions that the chain no longer has, accepted by resync
	NextNonce     uint64
	Named         []Naming // the effect of each name, by nonce
	Filling       *Filling // the nonces that placeholders consume; nil: none requested or required
}

// NoRequest states in [ReleaseRequest.Requests] that no request of this database consumed the
// nonce.
const NoRequest = "none"

// Naming is one pair of a nonce and a request in a release, and its effect.
type Naming struct {
	Nonce     uint64       `json:"nonce"`
	RequestID string       `json:"requestId"`
	TxID      string       `json:"txId,omitempty"`   // "": the request was not stored
	TxHash    *Hash        `json:"txHash,omitempty"` // the foreign transaction; nil: no node gives it
	Effect    NamingEffect `json:"effect"`
	Stated    bool         `json:"stated"` // an operator stated that it was carried out: no node can prove it
}

// NamingEffect is the effect of naming a request.
type NamingEffect string

// The effects. After each, the request's call is never signed again.
const (
	NamedRecorded    NamingEffect = "RECORDED"    // the request ended CONFIRMED/RECORDED, by its transaction or by an operator's statement
	NamedReverted    NamingEffect = "REVERTED"    // the request ended FAILED/REVERTED, as its transaction did
	NamedPlaceholder NamingEffect = "PLACEHOLDER" // the request holds another nonce; it ends when a placeholder has consumed that
)

// OpenRequest is a request that a foreign transaction may have carried out: a queued intent, or an
// open payout without a stored intent.
type OpenRequest struct {
	RequestID string
	TxID      string // "": an open payout
	Payload   []byte
	Unknown   bool // its call is unknown until its handler runs
}

// NamedRequest is the stored state of a request that a release names.
type NamedRequest struct {
	TxID  string
	State State
	Sub   SubState
}

// UnnamedNonceError reports nonces for which the operator must name the request. The transaction
// that consumed each makes the call of a request, or is unknown.
type UnnamedNonceError struct {
	Nonce uint64
	Why   string
	More  []string // the other nonces, each with its reason
}

func (e UnnamedNonceError) Error() string {
	return strings.Join(append([]string{fmt.Sprintf("nonce %d: %s", e.Nonce, e.Why)}, e.More...), "; ")
}

// NamingError reports a name in a release that would have no effect, or a wrong one.
type NamingError struct {
	Nonce     uint64
	RequestID string
	Why       string
}

func (e NamingError) Error() string {
	return fmt.Sprintf("nonce %d, request %q: %s", e.Nonce, e.RequestID, e.Why)
}

// ErrStillReading reports lost nonces whose transactions are still being read.
var ErrStillReading = errors.New("the transactions that consumed the nonces are still being read")

// UnprovedError reports a statement of a release about a lost nonce that the chain does not prove.
type UnprovedError struct {
	Field string // the release's field: hashes or executed
	Nonce uint64
	Why   string
}

func (e UnprovedError) Error() string { return fmt.Sprintf("nonce %d: %s", e.Nonce, e.Why) }

// LostNonces describes the nonces for which a lost database may have signed. Its bytes can be
// mined until another transaction consumes these nonces.
type LostNonces struct {
	Payer       bool   // the submitter makes payouts for the transfer coordinator
	Restored    bool   // the database was accepted after a restore, and no release has filled the nonces since; false if Retired
	Retired     bool   // the submitter signs nothing any more
	Window      uint64 // the widest that the submitter has had
	Change      int64  // number of the last change of the database identity; 0: none
	StatedBelow uint64 // a payout that an operator states as unpaid waits for every nonce below this; 0: none
}

// Filling is the range of nonces that a release makes placeholders consume.
type Filling struct {
	From  uint64 `json:"from"`  // the first
	Below uint64 `json:"below"` // one above the last; not above From: the range is empty
}

// FillError reports a release that would fill too few nonces, or cannot fill them.
type FillError struct{ Why string }

func (e FillError) Error() string { return e.Why }

// Errors of a release that must fill nonces. After each, the incident is unchanged.
var (
	// ErrFillRequired reports a payer of a restored database that was to leave PROTECT by resume:
	// lost payments may still be mined.
	ErrFillRequired = errors.New("the database was restored, and lost transactions of this account can still be mined: release it by resync, which fills their nonces with placeholders")
	// ErrNotYetFinal reports transactions of the account that are mined and not final yet. A
	// placeholder for their nonces would have no effect.
	ErrNotYetFinal = errors.New("the account has transactions that are not final yet, and placeholders fill only nonces above the final ones: release again once they are final")
)

// FinalTx is a final transaction that consumed its nonce, with the mined version.
type FinalTx struct {
	ID        string `json:"txId"`
	Nonce     uint64 `json:"nonce"`
	Hash      Hash   `json:"hash"`
	Raw       []byte `json:"-"`
	Succeeded bool   `json:"succeeded"`
}

// LastFinal is the highest remembered block of a final transaction; ok is false without one.
// Blocks name their parents, and each was compared when the next was added. If the highest is
// canonical, so are those below it.
func (w SubmitterState) LastFinal() (h Header, ok bool) {
	if len(w.FinalBlocks) == 0 {
		return h, false
	}
	return w.FinalBlocks[len(w.FinalBlocks)-1], true
}

// IsFinalBlockReorged reports whether PROTECT is open because a final block was reorged out.
func (w SubmitterState) IsFinalBlockReorged() bool {
	return w.Evidence != nil && w.Evidence.Kind == FinalBlockReorged
}

// FinalsMissingError reports a resume while final transactions are not back on the chain.
type FinalsMissingError struct{ Missing []FinalTx }

func (e FinalsMissingError) Error() string {
	return fmt.Sprintf("%d final transactions are not on the chain again, the first with nonce %d, hash %s",
		len(e.Missing), e.Missing[0].Nonce, e.Missing[0].Hash)
}
