package txmanager

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
)

// EventType is what an event tells of a transaction.
type EventType string

// The types of events. Each is made by the statement that makes it true, in that
// statement's commit.
const (
	TxAccepted       EventType = "TxAccepted"       // it is on record, and waits for its nonce
	TxSubmitted      EventType = "TxSubmitted"      // a version is signed and stored, and its broadcast claimed
	TxReceiptUpdated EventType = "TxReceiptUpdated" // a receipt is there, is another, or was removed by a reorg
	TxConfirmed      EventType = "TxConfirmed"      // the list of blocks from its own on has changed, or makes it final
	TxFailed         EventType = "TxFailed"         // it has failed, for ever
)

// Event is one thing that became of a transaction. The sequences of a transaction are
// 1, 2, 3, … without a hole; what is told twice has the same txId, type and sequence.
type Event struct {
	Position  uint64          `json:"-"` // among all events that are kept, in the order in which they are told; 0: it is not kept
	TxID      string          `json:"txId"`
	Sequence  int             `json:"sequence"`
	Type      EventType       `json:"type"`
	Submitter Submitter       `json:"submitter"`
	Caller    string          `json:"-"` // whose transaction it is; "": not known
	Body      json.RawMessage `json:"-"` // what receivers get, the same bytes each time; the members above are in it
}

// Key tells one event from every other, and two copies of one from nothing.
func (e Event) Key() string { return e.TxID + "-" + string(e.Type) + "-" + strconv.Itoa(e.Sequence) }

// ErrNoAnswer reports that a receiver was not reached, did not answer in time, or said
// that it cannot take anything now.
var ErrNoAnswer = errors.New("no answer from the receiver")

// DomainEventPublisher tells a receiver of events. It changes no transaction, and no
// transaction waits for it.
type DomainEventPublisher interface {
	// Publish tells of events of one submitter, in their order. It returns how many of
	// them, from the first on, are certainly taken, and, where that is not all, why.
	// The others may have been taken too: they are told again, the same, in order. The
	// error wraps [ErrNoAnswer] where nothing speaks against the event itself.
	Publish(ctx context.Context, events []Event) (taken int, err error)
}
