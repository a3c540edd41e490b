package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Intent is what a submitter shall do, once.
type Intent struct {
	Submitter string `json:"submitter"`         // such as eip155:1:0x…
	RequestID string `json:"requestId"`         // the caller's own key, 1 to 128 bytes
	Handler   string `json:"handler,omitempty"` // who makes the transaction out of Payload; "": Payload is the transaction
	Payload   any    `json:"payload"`           // a [Payload], or with a handler any value; a [json.RawMessage] is sent as it stands

	// ValidUntil is until when it may get its turn, to the microsecond; after that it ends
	// FAILED/EXPIRED. The same request again has the same one. nil: that never ends.
	ValidUntil *time.Time `json:"validUntil,omitempty"`
}

// Payload is what to do on an EVM chain. Amounts are decimal strings, in wei; what is
// empty is left out.
type Payload struct {
	To                   string `json:"to,omitempty"` // "": Data is a contract to deploy
	Value                string `json:"value,omitempty"`
	Data                 string `json:"data,omitempty"`     // 0x and hex digits
	Function             string `json:"function,omitempty"` // such as transfer(address,uint256); with Args in place of Data
	Args                 []any  `json:"args,omitempty"`
	Gas                  string `json:"gas,omitempty"`
	MaxFeePerGas         string `json:"maxFeePerGas,omitempty"`
	MaxPriorityFeePerGas string `json:"maxPriorityFeePerGas,omitempty"` // above fees.maxTipMultiple times the nodes' advice it is lowered to that
}

// Created is what became of an intent that was posted.
type Created struct {
	TxID string `json:"txId"`
}

// TxState is how far a transaction is.
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

// Final says that the state never changes again.
func (s TxState) Final() bool { return s == Confirmed || s == Failed }

// ListedTx is a transaction as lists have it.
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
}

// MempoolDiagnosis is where a transaction seemed to be before it had a receipt, by what
// one node said at one moment. It proves nothing.
type MempoolDiagnosis struct {
	Signal       string    `json:"signal"` // IN_MEMPOOL, PERHAPS_LOST, PERHAPS_REPLACED
	Advice       string    `json:"advice"` // WAIT, RESUBMIT, BUMP
	Since        time.Time `json:"since"`
	Node         string    `json:"node"`
	Block        uint64    `json:"block"`
	LatestCount  uint64    `json:"latestCount"`
	PendingCount uint64    `json:"pendingCount"`
}

// Receipt is what a node said of the version that was mined.
type Receipt struct {
	TxHash      string          `json:"txHash"`
	BlockNumber uint64          `json:"blockNumber"`
	BlockHash   string          `json:"blockHash"`
	Succeeded   bool            `json:"succeeded"` // false: mined, and reverted
	Document    json.RawMessage `json:"document"`  // the node's own
}

// Block is one of the chain's.
type Block struct {
	Number uint64 `json:"number"`
	Hash   string `json:"hash"`
}

// CreateTx posts an intent. The same intent again has the same TxID.
func (c *Client) CreateTx(ctx context.Context, in Intent) (out Created, err error) {
	err = c.call(ctx, request{method: http.MethodPost, path: "/api/v1/tx", body: in}, &out)
	return out, err
}

// BatchResult is what became of one intent of a batch: a TxID, or a code.
type BatchResult struct {
	Status            int    `json:"status"` // that the intent alone would have been answered with
	TxID              string `json:"txId"`
	Code              string `json:"code"`
	Field             string `json:"field"`
	Detail            string `json:"detail"`
	RetryAfterSeconds int    `json:"retryAfterSeconds"` // 0: nothing was told
}

// CreateTxBatch posts up to 500 intents at once; each has a result, in order. Those
// that are to be tried again are the caller's to post again.
func (c *Client) CreateTxBatch(ctx context.Context, all []Intent) ([]BatchResult, error) {
	var out struct {
		Results []BatchResult `json:"results"`
	}
	body := map[string]any{"intents": all}
	err := c.call(ctx, request{method: http.MethodPost, path: "/api/v1/tx:batch", body: body}, &out)
	return out.Results, err
}

// Tx is the transaction; NOT_FOUND: there is none, or it is another caller's.
func (c *Client) Tx(ctx context.Context, txID string) (out Tx, err error) {
	err = c.call(ctx, request{method: http.MethodGet, path: "/api/v1/tx/" + url.PathEscape(txID)}, &out)
	return out, err
}

// TxByRequest is the transaction of the request; NOT_FOUND: nothing is stored under it.
func (c *Client) TxByRequest(ctx context.Context, submitter, requestID string) (out Tx, err error) {
	q := url.Values{"submitter": {submitter}, "requestId": {requestID}}
	err = c.call(ctx, request{method: http.MethodGet, path: "/api/v1/tx/by-request", query: q}, &out)
	return out, err
}

// WaitTx asks for the transaction until it is final, or until ctx ends: then the error
// is that of ctx, and what was seen last comes with it.
func (c *Client) WaitTx(ctx context.Context, txID string) (last Tx, err error) {
	err = c.poll(ctx, func() (bool, error) {
		seen, err := c.Tx(ctx, txID)
		if err == nil {
			last = seen
		}
		return err == nil && seen.State.Final(), err
	})
	return last, err
}

// TxQuery says which transactions to list.
type TxQuery struct {
	Submitter string
	State     TxState // "": any
	PageSize  int     // how many are fetched at once, up to 500; 0: 50
}

// ListTx yields a submitter's transactions, the newest first, page by page as they are
// wanted. It ends at the first error.
func (c *Client) ListTx(ctx context.Context, q TxQuery) iter.Seq2[ListedTx, error] {
	values := url.Values{"submitter": {q.Submitter}}
	setUnless(values, "state", string(q.State), "")
	setUnless(values, "pageSize", strconv.Itoa(q.PageSize), "0")
	return pages("pageToken", values, func(values url.Values) ([]ListedTx, string, error) {
		var page struct {
			Transactions  []ListedTx `json:"transactions"`
			NextPageToken string     `json:"nextPageToken"`
		}
		err := c.call(ctx, request{method: http.MethodGet, path: "/api/v1/tx", query: values}, &page)
		return page.Transactions, page.NextPageToken, err
	})
}

func setUnless(values url.Values, name, value, none string) {
	if value != none {
		values.Set(name, value)
	}
}

// pages follows a list from page to page; the parameter named cursor says where the next
// begins.
func pages[T any](cursor string, values url.Values, fetch func(url.Values) (page []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			page, next, err := fetch(values)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, one := range page {
				if !yield(one, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			values.Set(cursor, next)
		}
	}
}

// Outcome is what a cancellation came to.
type Outcome string

// The outcomes of a cancellation.
const (
	Cancelled Outcome = "CANCELLED" // not carried out, and never will be
	Executed  Outcome = "EXECUTED"  // a version of its own was mined, and is final
	Pending   Outcome = "PENDING"   // not decided yet: ask again
)

// CancelTx takes the intent back, if that is still possible.
func (c *Client) CancelTx(ctx context.Context, txID string) (Outcome, error) {
	var out struct {
		Outcome Outcome `json:"outcome"`
	}
	err := c.call(ctx, request{method: http.MethodPost, path: "/api/v1/tx/" + url.PathEscape(txID) + "/cancel"}, &out)
	return out.Outcome, err
}
