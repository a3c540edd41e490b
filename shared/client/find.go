package client

import (
	"context"
	"iter"
	"time"
)

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
