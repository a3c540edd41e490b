package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"time"
)

// Intent is a request for a submitter, carried out once.
type Intent struct {
	Submitter string `json:"submitter"`         // such as eip155:1:0x…
	RequestID string `json:"requestId"`         // the caller's own key, 1 to 128 bytes
	Handler   string `json:"handler,omitempty"` // who makes the transaction out of Payload; "": Payload is the transaction
	Payload   any    `json:"payload"`           // a [Payload], or with a handler any value; a [json.RawMessage] is sent as it stands

	// ValidUntil is the latest time at which the intent may get a nonce, to the microsecond.
	// After that it ends FAILED/EXPIRED. A repeated request must have the same value. nil: it
	// never expires.
	ValidUntil *time.Time `json:"validUntil,omitempty"`
}

// Payload is the call on an EVM chain. Amounts are decimal strings in wei; empty members are
// omitted.
type Payload struct {
	To                   string `json:"to,omitempty"` // "": Data is a contract to deploy
	Value                string `json:"value,omitempty"`
	Data                 string `json:"data,omitempty"`     // 0x and hex digits
	Function             string `json:"function,omitempty"` // such as transfer(address,uint256); with Args in place of Data
	Args                 []any  `json:"args,omitempty"`
	Gas                  string `json:"gas,omitempty"`    // the gas limit
	MaxGas               string `json:"maxGas,omitempty"` // in place of Gas: the highest gas limit that an estimate may give
	MaxFeePerGas         string `json:"maxFeePerGas,omitempty"`
	MaxPriorityFeePerGas string `json:"maxPriorityFeePerGas,omitempty"` // above fees.maxTipMultiple times the nodes' advice it is lowered to that
}

// Created is the result of a posted intent.
type Created struct {
	TxID string `json:"txId"`
}

// TxState is the state of a transaction.
type TxState string

// The states of a transaction.
const (
	Queued    TxState = "QUEUED"
	InFlight  TxState = "IN_FLIGHT"
	Submitted TxState = "SUBMITTED"
	Tracking  TxState = "TRACKING"
	Stuck     TxState = "STUCK"
	Protect   TxState = "PROTECT"
	Confirmed TxState = "CONFIRMED"
	Failed    TxState = "FAILED"
)

// Final is true if the state never changes again.
func (s TxState) Final() bool { return s == Confirmed || s == Failed }

// ListedTx is a transaction in a list.
type ListedTx struct {
	TxID           string     `json:"txId"`
	Submitter      string     `json:"submitter"`
	RequestID      string     `json:"requestId"`
	State          TxState    `json:"state"`
	SubState       string     `json:"subState"`       // "": none
	TxHash         string     `json:"txHash"`         // of the version last sent, at the end of the one that was mined; "": none yet
	ReplacedByHash string     `json:"replacedByHash"` // of the version that was mined where that is not the first
	LastError      string     `json:"lastError"`
	CreatedAt      time.Time  `json:"createdAt"`
	UpdatedAt      time.Time  `json:"updatedAt"`
	ConfirmedAt    *time.Time `json:"confirmedAt"` // nil: not mined for good
	ValidUntil     *time.Time `json:"validUntil"`  // until when it may get its turn; nil: that never ends
	Nonce          *uint64    `json:"nonce"`       // for operators alone

	LastErrorDetail string `json:"lastErrorDetail"` // for operators alone: what a node said; "": nothing
}

// Tx is a transaction.
type Tx struct {
	ListedTx
	Receipt       *Receipt          `json:"receipt"`       // nil: none
	Confirmations []Block           `json:"confirmations"` // from the receipt's block on
	Mempool       *MempoolDiagnosis `json:"mempool"`       // for operators alone; nil: none was made
	Waiting       *Waiting          `json:"waiting"`       // nil: it has ended; lists do not have it
}

// Waiting is why a transaction waits.
type Waiting struct {
	Cause        string     `json:"cause"`
	Since        time.Time  `json:"since"`
	Position     int        `json:"position"`     // in the queue, from 1 on; 0: it is not in the queue, or is held
	PositionMore bool       `json:"positionMore"` // the position is above Position
	BlockedBy    *Blocker   `json:"blockedBy"`    // the transaction that has to go on first; nil: none
	ExpectedAt   *time.Time `json:"expectedAt"`   // an estimate of when it is final or gets a nonce; nil: not known
}

// Blocker is the transaction that another one waits for. Its fields are empty if it is another caller's.
type Blocker struct {
	TxID  string     `json:"txId"`
	Cause string     `json:"cause"`
	Since *time.Time `json:"since"`
}

// MempoolDiagnosis is where one node saw the transaction at one moment before it had a
// receipt. It proves nothing.
type MempoolDiagnosis struct {
	Signal       string    `json:"signal"` // IN_MEMPOOL, PERHAPS_LOST, PERHAPS_REPLACED
	Advice       string    `json:"advice"` // WAIT, RESUBMIT, BUMP
	Since        time.Time `json:"since"`
	Node         string    `json:"node"`
	Block        uint64    `json:"block"`
	LatestCount  uint64    `json:"latestCount"`
	PendingCount uint64    `json:"pendingCount"`
}

// Receipt is a node's receipt of the mined version.
type Receipt struct {
	TxHash      string          `json:"txHash"`
	BlockNumber uint64          `json:"blockNumber"`
	BlockHash   string          `json:"blockHash"`
	Succeeded   bool            `json:"succeeded"` // false: mined, and reverted
	Document    json.RawMessage `json:"document"`  // as the node gave it: numbers are hex texts
}

// Block is a block of the chain.
type Block struct {
	Number uint64 `json:"number"`
	Hash   string `json:"hash"`
}

// CreateTx posts an intent. The same intent again has the same TxID.
func (c *Client) CreateTx(ctx context.Context, in Intent) (Created, error) {
	return post[Created](ctx, c, txs, in)
}

// BatchResult is the result of one intent of a batch: a TxID or a code.
type BatchResult struct {
	Status            int    `json:"status"` // that the intent alone would have been answered with
	TxID              string `json:"txId,omitempty"`
	Code              string `json:"code,omitempty"`
	Field             string `json:"field,omitempty"`
	Detail            string `json:"detail,omitempty"`
	RetryAfterSeconds int    `json:"retryAfterSeconds,omitempty"` // 0: none was given
}

// CreateTxBatch posts up to 500 intents at once and returns their results in order. The caller
// must post an intent again if its result asks for a retry.
func (c *Client) CreateTxBatch(ctx context.Context, all []Intent) ([]BatchResult, error) {
	out, err := post[struct {
		Results []BatchResult `json:"results"`
	}](ctx, c, "/api/v1/tx:batch", map[string]any{"intents": all})
	return out.Results, err
}

// Tx returns the transaction. NOT_FOUND: it does not exist or is another caller's.
func (c *Client) Tx(ctx context.Context, txID string) (Tx, error) {
	return get[Tx](ctx, c, pathOf(txs, txID), nil)
}

// TxByRequest returns the transaction of the request. NOT_FOUND: nothing is stored under it.
func (c *Client) TxByRequest(ctx context.Context, submitter, requestID string) (Tx, error) {
	return get[Tx](ctx, c, pathOf(txs, "by-request"), url.Values{"submitter": {submitter}, "requestId": {requestID}})
}

// WaitTx polls the transaction until it is final or ctx ends. In the second case it returns
// ctx's error and the last state that it read.
func (c *Client) WaitTx(ctx context.Context, txID string) (last Tx, err error) {
	return poll(ctx, c, c.Tx, txID, func(seen Tx) bool { return seen.State.Final() })
}

// TxQuery selects the transactions to list.
type TxQuery struct {
	Submitter string
	State     TxState // "": any
	PageSize  int     // how many are fetched at once, up to 1,000; 0: 100
}

// ListTx yields a submitter's transactions, the newest first.
func (c *Client) ListTx(ctx context.Context, q TxQuery) iter.Seq2[ListedTx, error] {
	values := queryOf("state", q.State, "pageSize", q.PageSize)
	values.Set("submitter", q.Submitter)
	return pages[ListedTx](ctx, c, txs, "transactions", values)
}

// Outcome is the outcome of a cancellation.
type Outcome string

// The outcomes of a cancellation.
const (
	Cancelled Outcome = "CANCELLED" // not carried out, and never will be
	Executed  Outcome = "EXECUTED"  // a version of its own was mined, and is final
	Pending   Outcome = "PENDING"   // not decided yet: ask again
)

// CancelTx cancels the intent, if that is still possible. The console's tokens are for [Client.CancelTxAsOperator].
func (c *Client) CancelTx(ctx context.Context, txID string) (Outcome, error) {
	return cancelTx(ctx, c, pathOf(txs, txID, "cancel"), nil)
}

func cancelTx(ctx context.Context, c *Client, path string, body any) (Outcome, error) {
	out, err := postOnce[struct {
		Outcome Outcome `json:"outcome"`
	}](ctx, c, path, body)
	return out.Outcome, err
}
