package client

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// TxWhy is what a transaction waits for, and what an operator can do.
type TxWhy struct {
	TxID            string     `json:"txId"`
	State           TxState    `json:"state"`
	SubState        string     `json:"subState"` // "": none
	LastError       string     `json:"lastError"`
	LastErrorDetail string     `json:"lastErrorDetail"`
	Waiting         *Waiting   `json:"waiting"`               // nil: it has ended
	NextActor       string     `json:"nextActor,omitempty"`   // who ends the wait, for a person
	Action          string     `json:"action,omitempty"`      // what an operator can do, for a person
	Runbook         string     `json:"runbook,omitempty"`     // a page of the repository
	NextCheckAt     *time.Time `json:"nextCheckAt,omitempty"` // nil: no time is planned
	LeasedBy        string     `json:"leasedBy,omitempty"`    // the node that works on the submitter now; "": none
	RequestedAction string     `json:"requestedAction,omitempty"`
}

// TxChange is one recorded change of a transaction.
type TxChange struct {
	At           time.Time `json:"at"`
	From         TxState   `json:"from"` // "": it was accepted
	State        TxState   `json:"state"`
	SubState     string    `json:"subState"`
	Nonce        *uint64   `json:"nonce"` // nil: none
	TxHash       string    `json:"txHash"`
	Attempts     int       `json:"attempts"` // broadcasts of the last version
	Reason       string    `json:"reason"`
	BlockHash    string    `json:"blockHash"`
	FencingToken *int64    `json:"fencingToken"` // nil: written without a lease

	Node      string       `json:"node"`      // host and port of the node whose observation led to it; "": none did
	Broadcast *NodeAnswers `json:"broadcast"` // the nodes' answers whose outcome it is; nil: of none
}

// NodeAnswers are what the nodes answered to the bytes of a version.
type NodeAnswers struct {
	Accepted int          `json:"accepted"` // nodes that accepted them
	Answers  []NodeAnswer `json:"answers"`  // empty if all that answered accepted
}

// NodeAnswer is one node's answer.
type NodeAnswer struct {
	Node   string `json:"node"`   // host and port
	Answer string `json:"answer"` // its class: accepted, already_known, fee_too_low, …
}

// TxVersion is a signed version of a transaction.
type TxVersion struct {
	Version      int             `json:"version"`
	Kind         string          `json:"kind"` // ORIGINAL, BUMP, PLACEHOLDER
	TxHash       string          `json:"txHash"`
	SignedAt     time.Time       `json:"signedAt"`
	LastSentAt   time.Time       `json:"lastSentAt"`
	Broadcast    *NodeAnswers    `json:"broadcast"` // the last answers that are kept; nil: none are
	FencingToken int64           `json:"fencingToken"`
	Fees         json.RawMessage `json:"fees"` // gas and fees, amounts as decimal strings in wei; null: archived
}

// TxDecision is a decision about a transaction.
type TxDecision struct {
	Action     string    `json:"action"`
	By         string    `json:"by"`
	Reason     string    `json:"reason"`
	ApprovedBy string    `json:"approvedBy"` // the second operator; "": none was needed
	At         time.Time `json:"at"`
}

// InspectedTx is a transaction with what its caller asked for.
type InspectedTx struct {
	Transaction Tx         `json:"transaction"`
	Caller      string     `json:"caller"`            // the name under which it is stored
	TraceID     string     `json:"traceId,omitempty"` // 32 hex digits; "": the request was not traced
	Payload     *TxPayload `json:"payload,omitempty"` // nil: a reservation and a filled nonce have none, or it is archived
}

// TxPayload is a stored payload: a call, or a handler with its arguments. Amounts are decimal strings in wei, gas a
// decimal string. "" is a bound that was not given.
type TxPayload struct {
	To                   string `json:"to,omitempty"`        // "": Data is a contract to deploy
	Value                string `json:"value,omitempty"`     // "": the transaction is a handler's
	Data                 string `json:"data,omitempty"`      // the first 4,096 bytes
	DataBytes            *int   `json:"dataBytes,omitempty"` // of the whole data
	Gas                  string `json:"gas,omitempty"`
	MaxGas               string `json:"maxGas,omitempty"`
	MaxFeePerGas         string `json:"maxFeePerGas,omitempty"`
	MaxPriorityFeePerGas string `json:"maxPriorityFeePerGas,omitempty"`

	Handler   string          `json:"handler,omitempty"`   // who makes the transaction out of Args; "": the caller
	Args      json.RawMessage `json:"args,omitempty"`      // nil: they have more than 64 KiB
	ArgsBytes int             `json:"argsBytes,omitempty"` // of the whole Args
}

// InspectTx returns the transaction with its payload and its trace. It is for operators.
func (c *Client) InspectTx(ctx context.Context, txID string) (InspectedTx, error) {
	return get[InspectedTx](ctx, c, pathOf(adminTxs, txID), nil)
}

// WhyTx returns what a transaction waits for. It is for operators.
func (c *Client) WhyTx(ctx context.Context, txID string) (TxWhy, error) {
	return get[TxWhy](ctx, c, pathOf(adminTxs, txID, "why"), nil)
}

// ListTxHistory yields the changes of a transaction, the oldest first. It is for operators.
func (c *Client) ListTxHistory(ctx context.Context, txID string) iter.Seq2[TxChange, error] {
	return pages[TxChange](ctx, c, pathOf(adminTxs, txID, "history"), "history", queryOf("pageSize", 1000))
}

// ListTxVersions yields the signed versions of a transaction, the oldest first. It is for operators.
func (c *Client) ListTxVersions(ctx context.Context, txID string) iter.Seq2[TxVersion, error] {
	return pages[TxVersion](ctx, c, pathOf(adminTxs, txID, "versions"), "versions", queryOf("pageSize", 500))
}

// ListTxDecisions yields the decisions about a transaction, the oldest first. It is for operators.
func (c *Client) ListTxDecisions(ctx context.Context, txID string) iter.Seq2[TxDecision, error] {
	return pages[TxDecision](ctx, c, pathOf(adminTxs, txID, "decisions"), "decisions", queryOf("pageSize", 500))
}

// TxFilter chooses transactions of all submitters. Empty fields do not filter. Some filters need
// Submitter: the error says so.
type TxFilter struct {
	Submitter string
	State     TxState
	Cause     string    // a stored cause of a wait
	Since     time.Time // accepted then or later
	Caller    string
	Hash      string // of any signed version
	RequestID string
	Nonce     *uint64
	PageSize  int // how many are fetched at once, up to 1,000; 0: 100
}

// FoundTx is a transaction in an operator's list.
type FoundTx struct {
	ListedTx
	Caller string     `json:"caller"`
	Cause  string     `json:"cause"` // why it waits; "": it has ended, or the cause follows from its queue
	Since  *time.Time `json:"since"` // since when it waits for a stored cause
}

// FindTxs yields the transactions that fit the filter, the newest first, or ordered by submitter if the
// filter has Cause or RequestID without Submitter. It is for operators.
func (c *Client) FindTxs(ctx context.Context, f TxFilter) iter.Seq2[FoundTx, error] {
	query := queryOf("submitter", f.Submitter, "state", f.State, "cause", f.Cause, "since", f.Since, "caller", f.Caller,
		"hash", f.Hash, "requestId", f.RequestID, "nonce", f.Nonce, "pageSize", f.PageSize)
	return pages[FoundTx](ctx, c, adminTxs, "transactions", query)
}

// LaneNonce is one nonce of a submitter.
type LaneNonce struct {
	Nonce       uint64     `json:"nonce"`
	Kind        string     `json:"kind"` // OURS; LOST: a foreign transaction consumed it; GAP: nothing is on record
	TxID        string     `json:"txId"` // "": none of ours has it
	RequestID   string     `json:"requestId"`
	State       TxState    `json:"state"`
	SubState    string     `json:"subState"`
	TxHash      string     `json:"txHash"`
	Cause       string     `json:"cause"`       // why an open transaction waits
	Since       *time.Time `json:"since"`       // since when it waits for a stored cause
	ForeignHash string     `json:"foreignHash"` // the recorded foreign transaction that consumed it
}

// Lane yields the nonces of a submitter from one on, the lowest first. Without from it begins where the
// open nonces do, or the newest. It is for operators.
func (c *Client) Lane(ctx context.Context, submitter string, from *uint64) iter.Seq2[LaneNonce, error] {
	return pages[LaneNonce](ctx, c, pathOf(submitters, submitter, "lane"), "nonces", queryOf("pageSize", 500, "from", from))
}

// QueuedTx is an intent that waits for a nonce.
type QueuedTx struct {
	Position     int       `json:"position"`     // from 1 on
	PositionMore bool      `json:"positionMore"` // the position is above Position
	TxID         string    `json:"txId"`
	RequestID    string    `json:"requestId"`
	Caller       string    `json:"caller"`
	State        TxState   `json:"state"`
	Cause        string    `json:"cause"`
	Since        time.Time `json:"since"`
}

// ListQueue yields the intents that wait for a nonce, in the order in which they are served. It is for
// operators.
func (c *Client) ListQueue(ctx context.Context, submitter string) iter.Seq2[QueuedTx, error] {
	return pages[QueuedTx](ctx, c, pathOf(submitters, submitter, "queue"), "queue", queryOf("pageSize", 500))
}
