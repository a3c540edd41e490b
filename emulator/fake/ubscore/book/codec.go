package book

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Append appends the entry in the log's format: kind, reason, status and precision take a byte
// each. Asset, user, units, createdAt, at and the length of reqId follow as varints, then reqId. The log
// stores the sequence number.
func (e Entry) Append(to []byte) []byte {
	to = append(to, byte(e.Kind), byte(slices.Index(reasons[:], e.Refused)), byte(e.Status), e.Precision)
	to = binary.AppendVarint(to, int64(e.AssetID))
	to = binary.AppendVarint(to, e.UserID)
	to = binary.AppendUvarint(to, e.Units)
	to = binary.AppendVarint(to, int64(e.CreatedAt))
	to = binary.AppendVarint(to, int64(e.At))
	to = binary.AppendUvarint(to, uint64(len(e.ReqID)))
	return append(to, e.ReqID...)
}

// Parse is the inverse of [Entry.Append]. It fails for bytes that Append cannot produce.
func Parse(seq uint64, body []byte) (Entry, error) {
	if len(body) < 4 {
		return Entry{}, errors.New("an entry ends within its codes")
	}
	e := Entry{Seq: seq, Request: Request{Kind: Kind(body[0]), Status: Status(body[2]), Precision: body[3]}}
	if !e.Kind.valid() || int(body[1]) >= len(reasons) || e.Status > Disabled || e.Precision > transfer.MaxPrecision {
		return Entry{}, fmt.Errorf("codes %v are unknown here; a newer core may have written them", body[:4])
	}
	e.Refused = reasons[body[1]]
	numbers := varints{rest: body[4:]}
	asset := numbers.signed()
	e.AssetID, e.UserID, e.Units = int32(asset), numbers.signed(), numbers.unsigned()
	e.CreatedAt, e.At = Micros(numbers.signed()), Micros(numbers.signed())
	length := numbers.unsigned()
	if numbers.ended || length != uint64(len(numbers.rest)) || length > wire.MaxReqID || int64(e.AssetID) != asset {
		return Entry{}, errors.New("an entry's numbers are not what its length says")
	}
	e.ReqID = string(numbers.rest)
	return e, nil
}

// varints reads numbers. It returns zeros after one that is not complete.
type varints struct {
	rest  []byte
	ended bool // within a number
}

func (v *varints) unsigned() uint64 {
	n, length := binary.Uvarint(v.rest)
	v.pass(length)
	return n
}

func (v *varints) signed() int64 {
	n, length := binary.Varint(v.rest)
	v.pass(length)
	return n
}

// pass passes over a number of that length; 0 or less: it is not complete.
func (v *varints) pass(length int) {
	if length <= 0 {
		v.ended, length = true, len(v.rest)
	}
	v.rest = v.rest[length:]
}

// Transfer returns the entry as the API's journal shows it.
func (e Entry) Transfer() wire.Entry {
	line := wire.Entry{
		Seq: e.Seq, Op: e.Kind.Op(), ReqID: e.ReqID, UserID: e.UserID, AssetID: e.AssetID,
		Units: wire.FormatUnits(e.Units), CreatedAt: wire.FormatTime(e.CreatedAt.Time()), At: wire.FormatTime(e.At.Time()),
		Outcome: outcome(e.Refused), Reason: e.Refused,
	}
	switch e.Kind {
	case SetStatus:
		line.Status = e.Status.String()
	case AddAsset:
		line.Precision = &e.Precision
	}
	return line
}

// Answer returns the answer to the caller.
func (e Entry) Answer() wire.Answer {
	op := e.Kind.Op()
	if e.Kind.isRecorded() {
		op = e.Kind.requested().Op()
	}
	return wire.Answer{Op: op, ReqID: e.ReqID, Outcome: outcome(e.Refused), Reason: e.Refused, Seq: e.Seq}
}

func outcome(refused transfer.Reason) string {
	if refused != "" {
		return wire.RefusedEver
	}
	return wire.Applied
}
