package txmanager

import (
	"encoding/json"
	"math/big"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// Tx is a managed transaction as loaded, or as it shall become. The payload and
// what binds it (ID, Submitter, RequestID, Seq) never change; Nonce is set once.
type Tx struct {
	ID        string // a UUID
	Submitter Submitter
	RequestID string
	Seq       int64 // the queue's order
	Payload   []byte
	Handler   string // makes the transaction, out of the payload, once the nonce is there; "": the payload is the transaction
	Trace     []byte // of its request, for a [Watcher], which alone knows what it means; nil: none

	State              State
	Sub                SubState
	Nonce              *uint64
	DeferredUntilNonce *uint64 // passed over in the queue until this nonce has settled

	Versions        []Hash // every signed version, oldest first; any may be the mined one
	Placeholders    []Hash // those of them that are placeholders
	Raw             []byte // the version last sent
	RequestedAction Action // what somebody decided about it, and is not done yet; "": nothing
	Gas             *GasParams

	FirstSubmitAt  *time.Time // times are the database's
	LastSubmitAt   *time.Time
	NextResubmitAt *time.Time
	SubmitAttempts int
	NextBumpAt     *time.Time // no replacement by gas bump before; nil: an interval after FirstSubmitAt
	LastCheckAt    *time.Time
	NextCheckAt    *time.Time
	LastError      string // why it waits, or what the last call said

	Diagnosis *Diagnosis // where it seemed to be before it had a receipt; nil: nobody looked

	Receipt       *Receipt
	Confirmations []Header // the receipt's block and those on top of it, by parent hash

	Recorded *Recorded // what a release recorded of its request; nil: nothing

	Reservation *Reservation // somebody asked for the nonce itself; nil: nobody did

	FillsLostNonce bool // it is nothing but a placeholder: see [Filling]

	Caller      string // as it is stored
	Fingerprint []byte // of the payload
	MAC         MAC
	NeedsNoMAC  bool // it may be without a MAC: a release without MACs stored it

	Authenticity // as it was checked since it was loaded

	BarredReason string // why the submitter's callers do not let it have a nonce any more; "": they do, or it has one

	MaxValueWei *big.Int // what the submitter's policy allows its caller in one transaction; nil: no limit, or it has a nonce

	ValidUntil    *time.Time // no nonce is bound to it from then on; nil: that never ends
	PresentCaller string     // of a queued one: whose it is now, by the submitter's successions
	HeldBackSince *time.Time // since when its own bounds hold it back; nil: they do not
	DeferredAt    *time.Time // since when intents of other callers go ahead of it; nil: none does
}

// Hash is the version last sent; the zero hash before any was signed.
func (t Tx) Hash() Hash {
	if len(t.Versions) == 0 {
		return Hash{}
	}
	return t.Versions[len(t.Versions)-1]
}

// isPlaceholder says that the version h is one.
func (t Tx) isPlaceholder(h Hash) bool { return slices.Contains(t.Placeholders, h) }

// isAcknowledged says that a node has taken the transaction at least once.
func (t Tx) isAcknowledged() bool { return t.State == Tracking }

// GasParams is what a signed version may cost at most.
type GasParams struct {
	Gas       uint64   `json:"gas"`
	Legacy    bool     `json:"-"`                    // it has a gasPrice in place of the two, which is both
	FeeCapWei *big.Int `json:"maxFeePerGas"`         // wei per gas
	TipCapWei *big.Int `json:"maxPriorityFeePerGas"` // wei per gas
	ValueWei  *big.Int `json:"value"`
}

// MarshalJSON writes the amounts as decimal strings: money is never a float,
// not even in a reader's JSON.
func (g GasParams) MarshalJSON() ([]byte, error) {
	if g.Legacy {
		return json.Marshal(map[string]any{"gas": g.Gas, "gasPrice": g.FeeCapWei.String(), "value": g.ValueWei.String()})
	}
	return json.Marshal(map[string]any{
		"gas": g.Gas, "maxFeePerGas": g.FeeCapWei.String(),
		"maxPriorityFeePerGas": g.TipCapWei.String(), "value": g.ValueWei.String(),
	})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (g *GasParams) UnmarshalJSON(text []byte) error {
	var raw struct {
		Gas                  uint64
		MaxFeePerGas, Value  *decimalText
		MaxPriorityFeePerGas *decimalText
		GasPrice             *decimalText
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	g.Gas = raw.Gas
	g.FeeCapWei, g.TipCapWei, g.ValueWei = raw.MaxFeePerGas.int(), raw.MaxPriorityFeePerGas.int(), raw.Value.int()
	if raw.GasPrice != nil {
		g.Legacy, g.FeeCapWei, g.TipCapWei = true, raw.GasPrice.int(), raw.GasPrice.int()
	}
	return nil
}

type decimalText struct{ big.Int }

func (b *decimalText) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	return b.Int.UnmarshalText([]byte(s))
}

func (b *decimalText) int() *big.Int {
	if b == nil {
		return new(big.Int)
	}
	return &b.Int
}

// worstCostWei is the most that the version may take from the account.
func (g GasParams) worstCostWei() *big.Int {
	cost := new(big.Int).Mul(g.FeeCapWei, new(big.Int).SetUint64(g.Gas))
	return cost.Add(cost, g.ValueWei)
}

// SubmitterState is what the database knows of one submitter at one look, read under the
// lease after its token was committed.
type SubmitterState struct {
	Lease              lease.Lease
	Now                time.Time // the database's clock at the load
	Window             uint64    // max_in_flight; 1 where Strict
	Strict             bool      // no nonce is bound while any is open: see [Rules.bindWindow]
	NextNonce          uint64
	FinalHead          uint64     // the highest block of a final transaction; 0: none
	FinalBlocks        []Header   // blocks of the last final transactions, ascending, to reorg.watchDepth
	SuspectedViolation *Violation // what the last look found amiss with the account
	Protected          bool       // an episode of PROTECT is open
	Incident           int        // which; 0: none
	Evidence           *Violation // what opened it; nil: none is open, or the database is a foreign one
	ForeignDatabase    bool       // the database is not the one we wrote last: then it is protected too
	Suspended          bool       // an operator has switched allocation off
	HooksForbidden     bool       // its nonces are not the hooks' to reserve
	Signer             string     // which signer holds the key, as registered
	Open               []Tx       // by nonce
	Queue              []Tx       // the first queued, by seq, without those set aside, or deferred and not due, or behind one of the same caller that is
	QueueMore          bool       // there are more than were loaded
	Expired            []Tx       // queued, and past their validUntil: some of them. None while Protected
	ExpiredMore        bool       // there are perhaps more

	NextExpiry    *time.Time // the first validUntil to come of what is queued; nil: none
	DeferredUntil *time.Time // when the first of those that are deferred is due again; nil: none is deferred, or all are due

	Bounds Bounds // of the submitter's policy

	BumpBudgetUsedWei *big.Int // what replacements of the last 24 hours added at worst, where a gas bump has a budget; nil: nothing

	ForeignUnread   bool // foreign transactions of the open episode are not all read and final
	ForeignReadable bool // and the blocks that have them are being read: the next step may follow at once

	LowestDeferredUntil *uint64 // the lowest nonce that an intent set aside waits for; nil: none waits

	loadedAt time.Time // with a monotonic reading
}

// WithLoadTime stamps the moment of the load, by which [SubmitterState] carries the database's
// clock on.
func (w SubmitterState) WithLoadTime(at time.Time) SubmitterState {
	w.loadedAt = at
	return w
}

// now is the database's clock, carried on by the process's monotonic one.
func (w SubmitterState) now() time.Time { return w.Now.Add(time.Since(w.loadedAt)) }

// lowestOpenNonce is the lowest unsettled nonce, or the next one where none is.
func (w SubmitterState) lowestOpenNonce() uint64 {
	if len(w.Open) == 0 {
		return w.NextNonce
	}
	return *w.Open[0].Nonce
}

// roomInWindow is how many nonces may be allocated from the cursor on now.
func (w SubmitterState) roomInWindow() int {
	held := w.NextNonce - w.lowestOpenNonce()
	if held >= w.Window {
		return 0
	}
	return int(w.Window - held)
}

// ViolationKind is what a suspicion is about.
type ViolationKind string

// The premises that can be seen to be broken.
const (
	CountAhead        ViolationKind = "AHEAD" // the chain's count is ahead of every nonce handed out
	NonceConsumed     ViolationKind = "TAKEN" // the lowest nonce in flight is consumed by none of its versions
	FinalBlockReorged ViolationKind = "REORG" // the block of a final transaction is no longer the chain's
)

// Violation is a sign that a premise is broken, seen once. Seen again at a later
// block it opens PROTECT, with this as evidence.
type Violation struct {
	Kind          ViolationKind `json:"why"`
	Description   string        `json:"what"`          // the same in words
	ExpectedNonce uint64        `json:"expectedNonce"` // what the cursor allows at most
	LatestCount   uint64        `json:"latestCount"`
	PendingCount  uint64        `json:"pendingCount"`
	Block         uint64        `json:"block"`
	BlockHash     Hash          `json:"blockHash"`
	Node          string        `json:"node"`

	AgreedBy string `json:"borneOutBy,omitempty"` // the chain's other nodes that show the same, of a chain with several

	Final *Header `json:"final,omitempty"` // for FinalBlockReorged: the final block that the chain had

	// For CountAhead and NonceConsumed, once PROTECT opens: the transaction that
	// consumed ExpectedNonce, or why it is not known.
	ConsumedBy        *ConsumingTx `json:"taker,omitempty"`
	ConsumedByUnknown string       `json:"takerUnknown,omitempty"`
	SameAsIntent      bool         `json:"sameAsIntent,omitempty"` // it does what the intent wanted: to, value and data
}
