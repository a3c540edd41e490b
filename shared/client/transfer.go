package client

import (
	"context"
	"crypto/rand"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// TransferRequest asks for money to be moved between two accounts of the token's user.
type TransferRequest struct {
	From   string `json:"from"` // FUNDING or SPOT
	To     string `json:"to"`
	Asset  string `json:"asset"`
	Amount string `json:"amount"` // a decimal number, such as 12.5

	// CID is the user's own key, up to 64 characters. "": one is made up for this call,
	// whose attempts are then one request, and no other call ever is the same. Who may
	// die in the middle gives its own, and keeps it.
	CID string `json:"cid"`

	UserID int64 `json:"user_id,omitempty"` // has to be the token's user; 0: left out
}

// PayoutRequest asks for money to be paid from Funding to an address outside.
type PayoutRequest struct {
	Asset   string `json:"asset"`
	Amount  string `json:"amount"`
	Address string `json:"address"`
	CID     string `json:"cid"`               // as in [TransferRequest]
	UserID  int64  `json:"user_id,omitempty"` // as in [TransferRequest]
}

// TransferState is how far a transfer or payout is.
type TransferState string

// The states of a transfer. An answer to a request says TransferPending in place of
// those that are not final.
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

// Final says that the state never changes again.
func (s TransferState) Final() bool {
	return s == TransferCommitted || s == TransferFailed || s == TransferRolledBack
}

// TransferResult is the answer to a request that was accepted.
type TransferResult struct {
	TransferID int64         `json:"transfer_id"`
	ReqID      string        `json:"req_id"`
	From       string        `json:"from"`
	To         string        `json:"to"`
	State      TransferState `json:"state"`   // PENDING: see WaitTransfer
	Message    string        `json:"message"` // for a person
	Code       string        `json:"code"`    // DUPLICATE_REQUEST: what is stored under the CID, however it ended; "": it is new
	Reason     string        `json:"reason"`  // why it failed; "": it has not
}

// Transfer is a transfer or payout.
type Transfer struct {
	TransferID int64         `json:"transfer_id"`
	ReqID      string        `json:"req_id"`
	From       string        `json:"from"`
	To         string        `json:"to"`
	Address    string        `json:"address"` // of a payout
	Asset      string        `json:"asset"`
	Amount     string        `json:"amount"`
	State      TransferState `json:"state"`
	Reason     string        `json:"reason"` // why it failed or is given back; "": it has not
	CreatedAt  time.Time     `json:"created_at"`
	UpdatedAt  time.Time     `json:"updated_at"`
}

// CreateTransfer moves money between two accounts, and answers once it has ended or
// goes on by itself. Where the transfer exists and has failed the error has a
// [Problem] with its ReqID; but an attempt after one without an answer hears what is
// stored: a result with DUPLICATE_REQUEST, which may be FAILED.
func (c *Client) CreateTransfer(ctx context.Context, in TransferRequest) (out TransferResult, err error) {
	if in.CID == "" {
		in.CID = rand.Text()
	}
	err = c.call(ctx, request{method: http.MethodPost, path: "/api/v1/internal_transfer", body: in}, &out)
	return out, err
}

// CreatePayout pays to an address outside. What [Client.CreateTransfer] says holds.
func (c *Client) CreatePayout(ctx context.Context, in PayoutRequest) (out TransferResult, err error) {
	if in.CID == "" {
		in.CID = rand.Text()
	}
	err = c.call(ctx, request{method: http.MethodPost, path: "/api/v1/payout", body: in}, &out)
	return out, err
}

// Transfer is the transfer or payout; NOT_FOUND: there is none, or it is another's.
func (c *Client) Transfer(ctx context.Context, reqID string) (out Transfer, err error) {
	err = c.call(ctx, request{method: http.MethodGet, path: "/api/v1/internal_transfer/" + url.PathEscape(reqID)}, &out)
	return out, err
}

// WaitTransfer asks for the transfer or payout until it is final, or until ctx ends:
// then the error is that of ctx, and what was seen last comes with it.
func (c *Client) WaitTransfer(ctx context.Context, reqID string) (last Transfer, err error) {
	err = c.poll(ctx, func() (bool, error) {
		seen, err := c.Transfer(ctx, reqID)
		if err == nil {
			last = seen
		}
		return err == nil && seen.State.Final(), err
	})
	return last, err
}

// TransferQuery says which transfers to list.
type TransferQuery struct {
	State    TransferState // "": any
	PageSize int           // how many are fetched at once, up to 500; 0: 50
}

// ListTransfers yields the user's transfers and payouts, the newest first, page by page
// as they are wanted. It ends at the first error.
func (c *Client) ListTransfers(ctx context.Context, q TransferQuery) iter.Seq2[Transfer, error] {
	values := url.Values{}
	setUnless(values, "state", string(q.State), "")
	setUnless(values, "pageSize", strconv.Itoa(q.PageSize), "0")
	return pages("pageToken", values, func(values url.Values) ([]Transfer, string, error) {
		var page struct {
			Transfers     []Transfer `json:"transfers"`
			NextPageToken string     `json:"next_page_token"`
		}
		err := c.call(ctx, request{method: http.MethodGet, path: "/api/v1/internal_transfer", query: values}, &page)
		return page.Transfers, page.NextPageToken, err
	})
}
