package client

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// ErrUnknown reports a call without a definite answer. The request may have been carried out,
// may still be, or may never be. Repeat it under the same key, or read the state. For a call
// that only reads, it means that the read failed.
//
// An error can be [ErrUnknown] and have a [Problem]. Then the last attempt was refused, and
// the outcome of an earlier attempt of the same call is unknown.
var ErrUnknown = errors.New("the outcome is unknown")

// Problem is a refusal. Code is the contract; texts are for people and may change.
type Problem struct {
	Status   int    `json:"status"` // of HTTP
	Code     string `json:"code"`   // such as REQUEST_ID_CONFLICT; "" where the answer was none of Fencepost's
	Title    string `json:"title"`
	Detail   string `json:"detail"`
	Field    string `json:"field"`    // the field or parameter at fault; "": none
	Instance string `json:"instance"` // the request in the service's log

	// These members are set for a transfer that exists: ReqID, and for a failed one also State
	// and Message.
	ReqID   string        `json:"req_id"`
	State   TransferState `json:"state"`
	Message string        `json:"message"`

	Left       string     `json:"left"`        // of DAILY_PAYOUT_EXCEEDED: how much can still be paid out; "": unknown
	UsableFrom *time.Time `json:"usable_from"` // of ADDRESS_NOT_YET_USABLE: when the address can be paid; nil: unknown

	RetryAfter time.Duration `json:"-"` // the answer's Retry-After; 0: none
}

// Error is the problem as text for a person.
func (p *Problem) Error() string {
	text := fmt.Sprint(p.Status)
	for _, part := range []string{p.Code, p.Field, p.ReqID, p.Detail} {
		if part != "" {
			text += " " + part
		}
	}
	return strings.TrimSpace(text)
}

// CodeOf is the code of the [Problem] in err; "" if there is none.
func CodeOf(err error) string {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p.Code
	}
	return ""
}

// unknown is true if the status leaves the outcome of the request unknown.
func (p *Problem) unknown() bool {
	return p.Status >= http.StatusInternalServerError || p.Status == http.StatusRequestTimeout || p.Code == ""
}

// later is true if a repetition may get another answer later.
func (p *Problem) later() bool {
	return p.Status >= http.StatusInternalServerError || p.Status == http.StatusRequestTimeout ||
		p.Status == http.StatusTooManyRequests || p.RetryAfter > 0
}

// final is true if the refusal also holds for every earlier attempt of the call. That is so if a transfer exists and has
// failed, or if a ledger has refused a deposit or withdrawal under its id. It is also so if the key is another request's.
func (p *Problem) final() bool {
	return p.Status == http.StatusUnprocessableEntity && (p.ReqID != "" || p.State == "REFUSED") || p.Code == "REQUEST_ID_CONFLICT" || p.Code == "CID_CONFLICT"
}
