package client

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// Event is a change of a transaction. A repeated delivery has the same TxID, Type and
// Sequence. The sequences of a transaction are 1, 2, 3, … without a gap.
type Event struct {
	Cursor    string          `json:"-"`    // its place, to go on from; "" where it did not come from [Client.Events]
	Type      string          `json:"type"` // TxAccepted, TxSubmitted, TxReceiptUpdated, TxConfirmed or TxFailed
	Timestamp time.Time       `json:"timestamp"`
	TxID      string          `json:"txId"`
	Submitter string          `json:"submitter"`
	RequestID string          `json:"requestId"`
	Sequence  int             `json:"sequence"`
	Data      json.RawMessage `json:"data"` // depends on Type
}

// EventQuery selects the events to read.
type EventQuery struct {
	PageToken string // the Cursor of the event that was read last; "": from the oldest that is kept
	Submitter string // "": of all
	PageSize  int    // how many are fetched at once, up to 1,000; 0: 100
}

// Events yields the kept events, the oldest first, up to the last one now.
func (c *Client) Events(ctx context.Context, q EventQuery) iter.Seq2[Event, error] {
	values := queryOf("pageToken", q.PageToken, "submitter", q.Submitter, "pageSize", q.PageSize)
	return func(yield func(Event, error) bool) {
		for {
			rows, next, err := page[struct {
				Cursor string `json:"cursor"`
				Event  Event  `json:"event"`
			}](ctx, c, "/api/v1/events", "events", values)
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, one := range rows {
				if one.Event.Cursor = one.Cursor; !yield(one.Event, nil) {
					return
				}
			}
			if len(rows) == 0 { // each page has a token of the next
				return
			}
			values.Set("pageToken", next)
		}
	}
}
