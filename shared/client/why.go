package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Why explains the state of a transfer or payout.
type Why struct {
	Transfer
	UserID       int64            `json:"user_id"`
	CID          string           `json:"cid,omitempty"`    // "": none
	Payout       *PayoutTerms     `json:"payout,omitempty"` // nil: it is no payout
	StateSince   time.Time        `json:"state_since"`
	Where        string           `json:"where"`                   // the money is, for a person
	LastEvidence string           `json:"last_evidence"`           // the last that is known, for a person
	NextTryAt    *time.Time       `json:"next_try_at,omitempty"`   // nil: none is due
	WouldUnblock string           `json:"would_unblock,omitempty"` // what it waits for, for a person; "": nothing
	RetryCount   int              `json:"retry_count"`
	Failures     int              `json:"failures"` // unknown answers in a row, in this state
	History      []Transition     `json:"history"`
	Resolutions  []Resolution     `json:"resolutions"`            // what operators did
	Statements   []Statement      `json:"statements,omitempty"`   // what operators stated of a payout
	ProvedBy     string           `json:"proved_by,omitempty"`    // the transaction that proves a payout paid; "": none does
	Acknowledged *Acknowledgement `json:"acknowledged,omitempty"` // the newest; nil: none
}

// PayoutTerms are what a payout pays on its chain.
type PayoutTerms struct {
	Submitter string `json:"submitter"` // the payer
	ChainID   uint64 `json:"chain_id"`
	Token     string `json:"token,omitempty"` // the contract; "": the native coin
	Address   string `json:"address"`
	BaseUnits string `json:"base_units"` // of the chain, such as wei
}

// Transition is one change of a transfer's state.
type Transition struct {
	At         time.Time     `json:"at"`
	From       TransferState `json:"from,omitempty"` // "": it was created
	State      TransferState `json:"state"`
	Reason     string        `json:"reason,omitempty"` // "": none
	RetryCount int           `json:"retry_count"`
}

// Resolution is an operator's act on a transfer, and its ledger's answer.
type Resolution struct {
	Op         string     `json:"op"` // cancel, withdraw, deposit or refund
	By         string     `json:"by"`
	Reason     string     `json:"reason"`
	At         time.Time  `json:"at"`
	Verdict    string     `json:"verdict,omitempty"` // SUCCESS, REFUSED or UNKNOWN; "": no answer yet
	Refusal    string     `json:"refusal,omitempty"` // why; "": not refused
	AnsweredAt *time.Time `json:"answered_at,omitempty"`
	Outcome    string     `json:"outcome,omitempty"` // that the operator gave: applied or not_applied; "": none
	Line       string     `json:"line,omitempty"`    // of the core's journal, that proves it; "": none was named
}

// Statement is an operator's statement about a payout.
type Statement struct {
	Paid           bool       `json:"paid"`
	TxHash         string     `json:"tx_hash,omitempty"`        // "": not paid
	Then           string     `json:"then,omitempty"`           // repost or refund; "": paid
	NoncesBelow    uint64     `json:"nonces_below,omitempty"`   // all below must be consumed before it takes effect; 0: none must
	OtherPayments  []string   `json:"other_payments,omitempty"` // transactions that do the same, and are others' payments
	By             string     `json:"by"`
	Reason         string     `json:"reason"`
	At             time.Time  `json:"at"`
	Counts         bool       `json:"counts"`                    // false: it was withdrawn, or the database has been restored since
	ActedAt        *time.Time `json:"acted_at,omitempty"`        // when it took effect; nil: not yet
	WithdrawnAt    *time.Time `json:"withdrawn_at,omitempty"`    // nil: it stands
	WithdrawnBy    string     `json:"withdrawn_by,omitempty"`    // "": it stands
	WithdrawReason string     `json:"withdraw_reason,omitempty"` // "": it stands
}

// Acknowledgement silences the alerts MON-001 and MON-002 of a transfer in one state.
type Acknowledgement struct {
	State  TransferState `json:"state"` // in which it counts
	By     string        `json:"by"`
	Reason string        `json:"reason"`
	At     time.Time     `json:"at"`
	Until  time.Time     `json:"until"`
}

// WhyTransfer returns where the money of a transfer or payout is, and what would advance it.
// It is for operators.
func (c *Client) WhyTransfer(ctx context.Context, reqID string) (Why, error) {
	return get[Why](ctx, c, pathOf(adminTransfers, reqID, "why"), nil)
}

// CancelTransfer ends a transfer that has not begun. TOO_LATE: it has begun. A transfer that was
// cancelled before is returned as it is. It is for operators.
func (c *Client) CancelTransfer(ctx context.Context, reqID, reason string) (Transfer, error) {
	return post[Transfer](ctx, c, pathOf(adminTransfers, reqID, "cancel"), map[string]string{"reason": reason})
}

// Resolve asks the ledger for its answer to an operation of a transfer.
type Resolve struct {
	Op      string `json:"op"` // the operation that the transfer waits for: withdraw, deposit or refund
	Reason  string `json:"reason"`
	Outcome string `json:"outcome,omitempty"` // applied or not_applied, after BEYOND_HORIZON alone; "": the ledger says
	Line    int64  `json:"line,omitempty"`    // of the core's journal, that proves Outcome; 0: a check of conservation must
}

// ResolveTransfer asks the ledger for the stored result of the operation, or makes it refuse the
// operation for ever. The transfer then continues with that result. NOTHING_TO_RESOLVE: the
// transfer does not wait for that answer. BEYOND_HORIZON: the trading core may have deleted it, and
// Outcome is required. NOT_FORGOTTEN: Outcome must not be given. EVIDENCE_DIFFERS: the evidence
// contradicts it. It is for operators.
func (c *Client) ResolveTransfer(ctx context.Context, reqID string, in Resolve) (Transfer, error) {
	return post[Transfer](ctx, c, pathOf(adminTransfers, reqID, "resolve"), in)
}

// Finding is a violation that a check of conservation found.
type Finding struct {
	ID       int64      `json:"id,omitempty"` // that [Client.AdjustFinding] names; 0: the check has just found it
	Kind     string     `json:"kind"`
	Side     string     `json:"side,omitempty"`   // FUNDING, SPOT or CHAIN; "": none
	ReqID    string     `json:"req_id,omitempty"` // of the transfer; "": none
	UserID   int64      `json:"user_id"`
	AssetID  int32      `json:"asset_id"`
	Expected string     `json:"expected"`
	Got      string     `json:"got"`
	At       *time.Time `json:"at,omitempty"` // when it was found first; nil: now
}

// HaltScope is what a halt of new transfers covers.
type HaltScope struct {
	Scope   string `json:"scope"`              // user_asset, asset or all
	UserID  *int64 `json:"user_id,omitempty"`  // nil: of all users
	AssetID *int32 `json:"asset_id,omitempty"` // nil: of all assets
}

// Halt is an open halt of new transfers.
type Halt struct {
	ID int64 `json:"id"` // that [Client.ResumeHalt] names
	HaltScope
	Since    time.Time       `json:"since"`
	Evidence json.RawMessage `json:"evidence"`
}

// LastCheck is the result of the last check of conservation.
type LastCheck struct {
	At       time.Time `json:"at"`
	Result   string    `json:"result"`   // ok or standing
	Standing int       `json:"standing"` // how much is wrong and not known to be right again
	Found    []Finding `json:"found"`    // the first 100
}

// Conservation has the last check of conservation and the open halts.
type Conservation struct {
	LastCheck *LastCheck `json:"last_check"` // nil: none has come to its end
	OpenHalts int        `json:"open_halts"` // how many are open
	Halts     []Halt     `json:"halts"`      // the newest of them, newest first
}

// Conservation returns the last check of conservation and the open halts. It is for operators.
func (c *Client) Conservation(ctx context.Context) (Conservation, error) {
	return get[Conservation](ctx, c, "/admin/v1/conservation", nil)
}

// ResumeHalt ends one halt of new transfers; with earlier also all halts opened before it.
// TOO_LATE: it is not open. It is for operators.
func (c *Client) ResumeHalt(ctx context.Context, id int64, earlier bool, reason string) error {
	body := map[string]any{"earlier": earlier, "reason": reason}
	return c.call(ctx, request{method: http.MethodPost, path: pathOf("/admin/v1/halts", id, "resume"), body: body}, nil)
}
