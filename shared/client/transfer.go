package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"iter"
	"time"
)

// TransferRequest requests a transfer between two accounts of the token's user.
type TransferRequest struct {
	From   string `json:"from"` // FUNDING or SPOT
	To     string `json:"to"`
	Asset  string `json:"asset"`
	Amount string `json:"amount"` // a decimal number, such as 12.5

	// CID is the user's own key, up to 64 characters. If it is "", the client makes a random
	// one for this call: its attempts are one request, and no other call repeats it. A program
	// that may crash during the call must choose and store its own CID.
	CID string `json:"cid"`

	UserID int64 `json:"user_id,omitempty"` // has to be the token's user; 0: omitted
}

// PayoutRequest requests a payment from Funding to an external address.
type PayoutRequest struct {
	Asset   string `json:"asset"`
	Amount  string `json:"amount"`
	Address string `json:"address"`
	CID     string `json:"cid"`               // as in [TransferRequest]
	UserID  int64  `json:"user_id,omitempty"` // as in [TransferRequest]
}

// TransferState is the state of a transfer or payout.
type TransferState string

// The states of a transfer. The answer to a request has TransferPending in place of the states
// that are not final.
const (
	TransferInit          TransferState = "INIT"
	TransferSourcePending TransferState = "SOURCE_PENDING"
	TransferSourceDone    TransferState = "SOURCE_DONE"
	TransferTargetPending TransferState = "TARGET_PENDING"
	TransferCompensating  TransferState = "COMPENSATING"
	TransferCommitted     TransferState = "COMMITTED"
	TransferFailed        TransferState = "FAILED"
	TransferRolledBack    TransferState = "ROLLED_BACK"
	TransferPending       TransferState = "PENDING"
)

// Final is true if the state never changes again.
func (s TransferState) Final() bool {
	return s == TransferCommitted || s == TransferFailed || s == TransferRolledBack
}

// TransferResult is the answer to a request that was accepted.
type TransferResult struct {
	TransferID int64         `json:"transfer_id"`
	ReqID      string        `json:"req_id"`
	From       string        `json:"from"`
	To         string        `json:"to"`
	State      TransferState `json:"state"`            // PENDING: see WaitTransfer
	Message    string        `json:"message"`          // for a person
	Code       string        `json:"code,omitempty"`   // DUPLICATE_REQUEST: what is stored under the CID, however it ended; "": it is new
	Reason     string        `json:"reason,omitempty"` // why it failed; "": it has not
}

// Transfer is a transfer or payout.
type Transfer struct {
	TransferID int64         `json:"transfer_id"`
	ReqID      string        `json:"req_id"`
	From       string        `json:"from"`
	To         string        `json:"to"`
	Address    string        `json:"address,omitempty"` // of a payout
	Asset      string        `json:"asset"`
	Amount     string        `json:"amount"`
	State      TransferState `json:"state"`
	Reason     string        `json:"reason,omitempty"` // why it failed or is refunded; "": neither
	CreatedAt  time.Time     `json:"created_at"`
	UpdatedAt  time.Time     `json:"updated_at"`
}

// CreateTransfer moves money between two accounts. It returns once the transfer has ended or
// continues in the background. If the transfer exists and has failed, the error has a
// [Problem] with its ReqID. After an attempt without an answer, a repetition returns the
// stored transfer instead: a result with DUPLICATE_REQUEST, which may be FAILED.
func (c *Client) CreateTransfer(ctx context.Context, in TransferRequest) (TransferResult, error) {
	in.CID = cmp.Or(in.CID, rand.Text())
	return post[TransferResult](ctx, c, transfers, in)
}

// CreatePayout pays to an external address. Its results are those of [Client.CreateTransfer].
func (c *Client) CreatePayout(ctx context.Context, in PayoutRequest) (TransferResult, error) {
	in.CID = cmp.Or(in.CID, rand.Text())
	return post[TransferResult](ctx, c, "/api/v1/payout", in)
}

// Transfer returns the transfer or payout. NOT_FOUND: it does not exist or is another user's.
func (c *Client) Transfer(ctx context.Context, reqID string) (Transfer, error) {
	return get[Transfer](ctx, c, pathOf(transfers, reqID), nil)
}

// WaitTransfer polls the transfer or payout until it is final or ctx ends. In the second case
// it returns ctx's error and the last state that it read.
func (c *Client) WaitTransfer(ctx context.Context, reqID string) (last Transfer, err error) {
	return poll(ctx, c, c.Transfer, reqID, func(seen Transfer) bool { return seen.State.Final() })
}

// TransferQuery selects the transfers to list.
type TransferQuery struct {
	State    TransferState // "": any
	PageSize int           // how many are fetched at once, up to 1,000; 0: 100
}

// ListTransfers yields the user's transfers and payouts, the newest first.
func (c *Client) ListTransfers(ctx context.Context, q TransferQuery) iter.Seq2[Transfer, error] {
	return pages[Transfer](ctx, c, transfers, "transfers", queryOf("state", q.State, "pageSize", q.PageSize))
}

// OperatorsTransfer is a transfer or payout as an operator sees it.
type OperatorsTransfer struct {
	Transfer
	UserID     int64 `json:"user_id"`
	RetryCount int   `json:"retry_count"` // how often a step was postponed
}

// AllTransfersQuery selects transfers of all users. An asset needs a user, unless the state is an open one, or a failed
// one without Before.
type AllTransfersQuery struct {
	State    TransferState // "": any
	UserID   int64         // 0: of all users
	Asset    string        // "": any
	Before   time.Time     // created before it; zero: at any time
	PageSize int           // how many are fetched at once, up to 1,000; 0: 100
}

// ListAllTransfers yields the transfers and payouts of all users, the newest first. It is for operators.
func (c *Client) ListAllTransfers(ctx context.Context, q AllTransfersQuery) iter.Seq2[OperatorsTransfer, error] {
	query := queryOf("state", q.State, "user", q.UserID, "asset", q.Asset, "before", q.Before, "pageSize", q.PageSize)
	return pages[OperatorsTransfer](ctx, c, adminTransfers, "transfers", query)
}
