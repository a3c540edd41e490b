package wire

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"time"

	"github.com/fencepost/fencepost/shared/transfer"
)

// NewOperation returns the body of a call. It fails with a [*FieldError] if no body can express the
// call: for an unusable req_id, or a missing creation time. A call that the core would refuse, such
// as an amount of 0, has a body.
func NewOperation(op transfer.Op, c transfer.Call) (Operation, error) {
	o := Operation{
		Op: op, ReqID: c.ReqID, UserID: &c.UserID, AssetID: &c.AssetID,
		Units: FormatUnits(c.Units), CreatedAt: FormatTime(c.CreatedAt),
	}
	_, err := o.Call()
	return o, err
}

// Call returns the call that the body asks for. The error is a [*FieldError] for the first missing
// or invalid member.
func (o Operation) Call() (transfer.Call, error) {
	if !Moves(o.Op) {
		return transfer.Call{}, wrong("op", "want withdraw, deposit, refund, outside_deposit or outside_withdrawal")
	}
	createdAt, errKey := parseKey(o.ReqID, o.CreatedAt)
	units, errUnits := ParseUnits(o.Units)
	if err := cmp.Or(errKey, checkAccount(o.UserID, o.AssetID), errUnits); err != nil {
		return transfer.Call{}, err
	}
	return transfer.Call{ReqID: o.ReqID, UserID: *o.UserID, AssetID: *o.AssetID, Units: units, CreatedAt: createdAt}, nil
}

// Call returns the operation that the record is about. The error is a [*FieldError].
func (r Record) Call() (transfer.Call, error) {
	switch {
	case r.Op != transfer.Withdraw && r.Op != transfer.Deposit && r.Op != transfer.Refund:
		return transfer.Call{}, wrong("op", "want withdraw, deposit or refund")
	case r.Outcome != Applied && r.Outcome != NotApplied:
		return transfer.Call{}, wrong("outcome", "want %q or %q", Applied, NotApplied)
	}
	return r.Operation.Call()
}

// Call returns the account, the amount and the key of the adjustment, and the balance that it
// requires. The error is a [*FieldError].
func (a Adjustment) Call() (c transfer.Call, balance uint64, err error) {
	if !a.Op.Adjusts() {
		return c, 0, wrong("op", "want journal_credit, journal_debit, balance_credit or balance_debit")
	}
	if balance, err = ParseUnits(a.Balance); err != nil {
		return c, 0, wrong("balance", "want a whole number from 0 to 2^64-1, in decimal digits without a leading zero")
	}
	if c, err = (Operation{transfer.Deposit, a.ReqID, a.UserID, a.AssetID, a.Units, a.CreatedAt}).Call(); err == nil && c.Units == 0 {
		err = wrong("units", "want more than 0")
	}
	return c, balance, err
}

// Check returns the body's creation time, or a [*FieldError] for an invalid member.
func (s AccountStatus) Check() (createdAt time.Time, err error) {
	createdAt, err = parseKey(s.ReqID, s.CreatedAt)
	if err = cmp.Or(err, checkAccount(s.UserID, s.AssetID)); err != nil {
		return createdAt, err
	}
	switch s.Status {
	case Active, Frozen, Disabled:
		return createdAt, nil
	}
	return createdAt, wrong("status", "want ACTIVE, FROZEN or DISABLED")
}

// Check returns the body's creation time, or a [*FieldError] for an invalid member.
func (a Asset) Check() (createdAt time.Time, err error) {
	if createdAt, err = parseKey(a.ReqID, a.CreatedAt); err != nil {
		return createdAt, err
	}
	if a.AssetID == nil || *a.AssetID <= 0 {
		return createdAt, wrong("assetId", "want a number from 1 to %d", math.MaxInt32)
	}
	if a.Precision == nil || *a.Precision > transfer.MaxPrecision {
		return createdAt, wrong("precision", "want a number from 0 to %d", transfer.MaxPrecision)
	}
	return createdAt, nil
}

func parseKey(reqID, createdAt string) (time.Time, error) {
	if err := CheckReqID(reqID); err != nil {
		return time.Time{}, err
	}
	return ParseTime("createdAt", createdAt)
}

// checkAccount requires both numbers. The core finds out whether the account exists, and refuses
// permanently if not.
func checkAccount(userID *int64, assetID *int32) error {
	if userID == nil {
		return wrong("userId", "want a number")
	}
	if assetID == nil {
		return wrong("assetId", "want a number")
	}
	return nil
}

// Transfer returns the line as the conservation check reads it. The error names the invalid member.
func (e Entry) Transfer() (transfer.Entry, error) {
	units, errUnits := ParseUnits(e.Units)
	at, errAt := ParseTime("at", e.At)
	if err := cmp.Or(errUnits, errAt, CheckOutcome(e.Outcome, e.Reason)); err != nil {
		return transfer.Entry{}, err
	}
	if Moves(e.Op) && e.Outcome == Applied && (e.ReqID == "" || e.UserID <= 0 || e.AssetID <= 0 || units == 0) {
		return transfer.Entry{}, wrong("reqId", "want one with an account and an amount, for an applied operation")
	}
	return transfer.Entry{
		Seq: e.Seq, ReqID: e.ReqID, Op: e.Op, UserID: e.UserID, AssetID: e.AssetID,
		Units: units, Refused: e.Reason, At: at,
	}, nil
}

// Mark returns a digest of the line's content, independent of the notation of its times.
func (e Entry) Mark() string {
	for _, text := range []*string{&e.At, &e.CreatedAt} {
		if t, err := ParseTime("at", *text); err == nil {
			*text = FormatTime(t)
		}
	}
	content, _ := json.Marshal(e) // an Entry has no value that JSON cannot express
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:16])
}

// CheckOutcome requires a reason for a refusal, and none for any other outcome.
func CheckOutcome(outcome string, reason transfer.Reason) error {
	switch {
	case outcome == Applied && reason == "":
		return nil
	case outcome == RefusedEver && reasonCode.MatchString(string(reason)):
		return nil
	case outcome == RefusedEver:
		return wrong("reason", "want a code in capitals, at most %d bytes", MaxReason)
	case outcome == Applied:
		return wrong("reason", "want none with %q", Applied)
	}
	return wrong("outcome", "want %q or %q", Applied, RefusedEver)
}

var reasonCode = regexp.MustCompile(fmt.Sprintf("^[A-Z_]{1,%d}$", MaxReason))
