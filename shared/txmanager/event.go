package txmanager

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
)

// EventType is the kind of an event of a transaction.
type EventType string

// The types. The statement that makes an event true also stores it, in the same commit.
const (
	TxAccepted       EventType = "TxAccepted"       // it is stored and waits for its nonce
	TxSubmitted      EventType = "TxSubmitted"      // a version is signed and stored, and its broadcast is claimed
	TxReceiptUpdated EventType = "TxReceiptUpdated" // a receipt arrived, changed, or was removed by a reorg
	TxConfirmed      EventType = "TxConfirmed"      // its list of confirming blocks changed, or makes it final
	TxFailed         EventType = "TxFailed"         // it failed permanently
)

// Event is one change of a transaction. The sequences of a transaction are 1, 2, 3, … without
// gaps. A repeated delivery has the same txId, type and sequence.
type Event struct {
	Position  uint64          `json:"-"` // order of delivery among all stored events; 0: not stored
	TxID      string          `json:"txId"`
	Sequence  int             `json:"sequence"`
	Type      EventType       `json:"type"`
	Submitter Submitter       `json:"submitter"`
	Caller    string          `json:"-"` // the transaction's caller; "": unknown
	Body      json.RawMessage `json:"-"` // the bytes that every delivery sends, which contain the members above
}

// Key is the same for two copies of one event, and different for any other event.
func (e Event) Key() string { return e.TxID + "-" + string(e.Type) + "-" + strconv.Itoa(e.Sequence) }

// ErrNoAnswer reports that a receiver was not reached, did not answer in time, or cannot accept
// events now.
var ErrNoAnswer = errors.New("no answer from the receiver")

// DomainEventPublisher delivers events to one receiver. It changes no transaction, and no
// transaction waits for it.
type DomainEventPublisher interface {
	// Publish delivers events of one submitter, in order. It returns how many of them, from the
	// first on, were certainly delivered, and the error if not all were. The others may have been
	// delivered too; they are delivered again, unchanged and in order. The error wraps
	// [ErrNoAnswer] where the event itself is not at fault.
	Publish(ctx context.Context, events []Event) (taken int, err error)
}
