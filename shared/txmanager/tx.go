package txmanager

import (
	"cmp"
	"encoding/json"
	"math/big"
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/lease"
)

// Tx is a managed transaction, as loaded or as it is to become. ID, Submitter, RequestID, Seq and
// Payload never change; Nonce is set once.
type Tx struct {
	ID        string // a UUID
	Submitter Submitter
	RequestID string
	Seq       int64 // position in the queue
	Payload   []byte
	Handler   string // makes the transaction from the payload once the nonce is bound; "": the payload is the transaction
	Trace     []byte // trace context of its request, for a [Watcher]; nil: none

	State              State
	Sub                SubState
	Nonce              *uint64
	DeferredUntilNonce *uint64 // the queue passes over it until this nonce is terminal

	Versions        []Hash // every signed version, oldest first; any of them may be mined
	Placeholders    []Hash // the versions that are placeholders
	Raw             []byte // the bytes of the last version
	RequestedAction Action // the requested action that is not carried out yet; "": none
	Gas             *GasParams

	CreatedAt      time.Time // when it was accepted; all times are the database's
	FirstSubmitAt  *time.Time
	LastSubmitAt   *time.Time
	NextResubmitAt *time.Time
	SubmitAttempts int
	NextBumpAt     *time.Time // no gas bump before this time; nil: one interval after FirstSubmitAt
	LastCheckAt    *time.Time
	NextCheckAt    *time.Time
	LastError      string // why it waits, or the answer of the last call; see [Tx.Explain]
	Cause          WaitCause

	Diagnosis *Diagnosis // where it seemed to be while it had no receipt; nil: not inspected

	Receipt       *Receipt
	Confirmations []Header // the receipt's block and the blocks on top of it, linked by parent hash

	Recorded *Recorded // what a release recorded for its request; nil: nothing

	Reservation *Reservation // for a nonce reserved without an intent; nil: none

	FillsLostNonce bool // it is only a placeholder: see [Filling]

	Caller      string // as stored
	Fingerprint []byte // of the payload
	MAC         MAC
	NeedsNoMAC  bool // it may lack a MAC: an earlier version of the program, without MACs, stored it

	Authenticity // the result of the check since the load

	BarredReason string // why the submitter's callers no longer allow it a nonce; "": they allow it, or it has one

	MaxValueWei *big.Int // the most that the submitter's policy allows its caller in one transaction; nil: no limit, or it has a nonce

	ValidUntil    *time.Time // from this time on it gets no nonce; nil: no limit
	PresentCaller string     // of a queued one: its caller now, after the submitter's successions
	HeldBackSince *time.Time // since when its own bounds block it; nil: they do not
	DeferredAt    *time.Time // since when intents of other callers pass it; nil: none does
}

// Hash is the hash of the last version; the zero hash before the first is signed.
func (t Tx) Hash() Hash {
	if len(t.Versions) == 0 {
		return Hash{}
	}
	return t.Versions[len(t.Versions)-1]
}

// IsPlaceholder reports whether version h is a placeholder.
func (t Tx) IsPlaceholder(h Hash) bool { return slices.Contains(t.Placeholders, h) }

// IsAcknowledged reports whether a node has accepted the transaction.
func (t Tx) IsAcknowledged() bool { return t.State == Tracking }

// GasParams are the upper bounds of what a signed version pays.
type GasParams struct {
	Gas       uint64   `json:"gas"`
	Legacy    bool     `json:"-"`                    // a legacy transaction: its gasPrice is in both fee fields
	FeeCapWei *big.Int `json:"maxFeePerGas"`         // wei per gas
	TipCapWei *big.Int `json:"maxPriorityFeePerGas"` // wei per gas
	ValueWei  *big.Int `json:"value"`
}

// MarshalJSON writes amounts as decimal strings, so that no JSON reader parses money as a float.
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

// decimalText is a big.Int that JSON has as a string.
type decimalText big.Int

func (b *decimalText) UnmarshalText(text []byte) error { return (*big.Int)(b).UnmarshalText(text) }

func (b *decimalText) int() *big.Int { return cmp.Or((*big.Int)(b), new(big.Int)) }

// WorstCostWei is the most that the version can take from the account, in wei.
func (g GasParams) WorstCostWei() *big.Int { return new(big.Int).Add(g.FeeWei(), g.ValueWei) }

// SubmitterState is what the database stores about one submitter. It is read under the lease,
// after the fencing token was committed.
type SubmitterState struct {
	Lease              lease.Lease
	Now                time.Time // the database's clock at the load
	Window             uint64    // max_in_flight; 1 where Strict
	Strict             bool      // no nonce is bound while another is open: see [rules.Rules.BindWindow]
	NextNonce          uint64
	FinalHead          uint64     // the highest block of a final transaction; 0: none
	FinalBlocks        []Header   // blocks of the last final transactions, ascending, to a depth of reorg.watchDepth
	SuspectedViolation *Violation // the suspected violation of the last chain query; nil: none
	Protected          bool       // a PROTECT incident is open
	Incident           int        // its number; 0: none
	Evidence           *Violation // what opened the incident; nil: none is open, or the database is a foreign one
	ForeignDatabase    bool       // the database identity is not the last one written; the submitter is then protected
	Suspended          bool       // an operator suspended allocation
	HooksForbidden     bool       // hooks must not reserve its nonces
	Signer             string     // the registered signer that holds the key
	Open               []Tx       // the open transactions, by nonce
	Queue              []Tx       // the first queued intents by seq, without the deferred that are not due, and later ones of a caller that has such an intent
	QueueMore          bool       // the queue has more than were loaded
	Expired            []Tx       // some queued intents past their validUntil; none while Protected
	ExpiredMore        bool       // there may be more

	NextExpiry    *time.Time // the earliest validUntil still to come in the queue; nil: none
	DeferredUntil *time.Time // when the first deferred intent is due again; nil: none is deferred, or all are due

	Bounds Bounds // the bounds of the submitter's policy

	BumpBudgetUsedWei *big.Int // the worst-case cost that gas bumps added in the last 24 hours, where they have a budget; nil: nothing

	ForeignUnread   bool // some foreign transactions of the open incident are not read or not final
	ForeignReadable bool // blocks are being read for them: the next step can follow at once

	LowestDeferredUntil *uint64 // the lowest nonce that a deferred intent waits for; nil: none waits

	// HeldBackSince has, by present caller, since when its own bounds hold back the intents that
	// it has at the head of the queue. An entry ends when an intent of the caller gets a nonce.
	HeldBackSince map[string]time.Time

	loadedAt time.Time // with a monotonic reading
	standing bool      // the clock stays at Now
}

// Submitter is the submitter that w was loaded for.
func (w SubmitterState) Submitter() Submitter { return Submitter(w.Lease.Submitter) }

// WithLoadTime records the moment of the load, from which now extrapolates the database's clock.
func (w SubmitterState) WithLoadTime(at time.Time) SubmitterState {
	w.loadedAt, w.standing = at, false
	return w
}

// WithStandingClock returns the state with a clock that stays at Now, for tests.
func (w SubmitterState) WithStandingClock() SubmitterState {
	w.standing = true
	return w
}

// DatabaseTime is the database's clock at the load plus the process's monotonic time since. Without a load
// time it is centuries later, so that every lease has ended.
func (w SubmitterState) DatabaseTime() time.Time {
	if w.standing {
		return w.Now
	}
	return w.Now.Add(time.Since(w.loadedAt))
}

// LowestOpenNonce is the lowest open nonce, or the next nonce where none is open.
func (w SubmitterState) LowestOpenNonce() uint64 {
	if len(w.Open) == 0 {
		return w.NextNonce
	}
	return *w.Open[0].Nonce
}

// RoomInWindow is how many nonces can be allocated now, from the cursor on.
func (w SubmitterState) RoomInWindow() int {
	return int(w.Window - min(w.NextNonce-w.LowestOpenNonce(), w.Window))
}

// ViolationKind is the invariant that an observation contradicts.
type ViolationKind string

// The violations that can be observed.
const (
	CountAhead        ViolationKind = "AHEAD" // the chain's count is above every allocated nonce
	NonceConsumed     ViolationKind = "TAKEN" // the lowest open nonce is consumed, and by none of its versions
	FinalBlockReorged ViolationKind = "REORG" // the block of a final transaction was reorged out
)

// Violation is a suspected violation, seen once. If it is seen again at a later block, it opens
// PROTECT with this as evidence.
type Violation struct {
	Kind          ViolationKind `json:"why"`
	Description   string        `json:"what"`          // the kind in words
	ExpectedNonce uint64        `json:"expectedNonce"` // the highest count that the cursor allows
	LatestCount   uint64        `json:"latestCount"`
	PendingCount  uint64        `json:"pendingCount"`
	Block         uint64        `json:"block"`
	BlockHash     Hash          `json:"blockHash"`
	Node          string        `json:"node"`

	AgreedBy string `json:"agreedBy,omitempty"` // the chain's other nodes that agree, where it has several

	Final *Header `json:"final,omitempty"` // for FinalBlockReorged: the final block that the chain no longer has

	// For CountAhead and NonceConsumed, once PROTECT opens: the transaction that consumed
	// ExpectedNonce, or why it is unknown.
	ConsumedBy        *ConsumingTx `json:"consumingTx,omitempty"`
	ConsumedByUnknown string       `json:"consumingTxUnknown,omitempty"`
	SameAsIntent      bool         `json:"sameAsIntent,omitempty"` // it has the intent's to, value and data
}

// Action is a requested action on a transaction that holds a nonce. The lease holder carries it
// out.
type Action string

// The actions. The transaction's caller requests ActionCancel; an operator requests the others.
const (
	ActionCancel      Action = "CANCEL"      // put a placeholder in its place, if no operator has to decide first
	ActionPlaceholder Action = "PLACEHOLDER" // put a placeholder in its place
	ActionReplace     Action = "REPLACE"     // sign it again with higher fees
	ActionRebroadcast Action = "REBROADCAST" // send the last version again, with its count of broadcasts reset
	ActionWait        Action = "WAIT"        // change nothing: only the record; it is still polled
)

// PayoutCaller is the caller of payouts. Only it may cancel one, or request its placeholder: a
// cancelled payout is refunded.
const PayoutCaller = "transfer"

// VersionKind is the purpose of a signed version.
type VersionKind string

// A placeholder consumes the nonce with a zero-value transfer from the account to itself.
const (
	VersionOriginal    VersionKind = "ORIGINAL"
	VersionBump        VersionKind = "BUMP"
	VersionPlaceholder VersionKind = "PLACEHOLDER"
)

// IsBroadcastClaimed reports whether a broadcast was claimed and its outcome is not recorded.
func (t Tx) IsBroadcastClaimed() bool {
	return t.LastSubmitAt != nil && t.NextResubmitAt != nil && t.NextResubmitAt.Equal(*t.LastSubmitAt)
}

// IsBroadcasting reports whether a node holds t, or t is sent in this iteration.
func (t Tx) IsBroadcasting() bool {
	return t.IsAcknowledged() || (t.State == Submitted && t.IsBroadcastClaimed())
}

// HasExpired reports whether t's validUntil has passed. t then gets no nonce.
func (t Tx) HasExpired(now time.Time) bool { return t.ValidUntil != nil && !t.ValidUntil.After(now) }

// IsDueBy reports whether t's next check is due at that time.
func (t Tx) IsDueBy(by time.Time) bool { return t.NextCheckAt == nil || !t.NextCheckAt.After(by) }

// Recorded is what a release recorded for a request: the foreign transaction that carried it out.
type Recorded struct {
	Nonce   uint64   `json:"nonce"`   // the nonce that the transaction consumed
	Receipt *Receipt `json:"receipt"` // nil: no node gave the transaction, and an operator stated that it was carried out
}

// StatedAsExecuted is the last error of a request that ended on an operator's statement alone.
const StatedAsExecuted = "an operator stated that a foreign transaction was this request and was carried out; no node shows that transaction, so nothing on the chain proves it"

// IsExecutedElsewhere reports whether a foreign transaction carried out t's request, and t's own
// nonce has no placeholder yet.
func (t Tx) IsExecutedElsewhere() bool { return t.Recorded != nil && !t.IsPlaceholder(t.Hash()) }

// IsExecutedTwice reports whether t's own bytes were carried out after a release recorded a
// foreign transaction for it.
func (t Tx) IsExecutedTwice() bool {
	return t.Recorded != nil && t.State.Terminal() && t.Receipt != nil && t.Receipt.Succeeded &&
		(t.Recorded.Receipt == nil || t.Recorded.Receipt.TxHash != t.Receipt.TxHash) && !t.IsPlaceholder(t.Receipt.TxHash)
}
