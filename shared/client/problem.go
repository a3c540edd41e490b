package client

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// ErrUnknown reports a call without a definite answer. What it asked for may have
// happened, may yet happen, or not: repeat it under the same key, or look. Of a call
// that only looks it means that nothing was learnt.
//
// An error can be [ErrUnknown] and have a [Problem]: the last attempt was refused,
// and what became of an earlier one of the same call is not known.
var ErrUnknown = errors.New("the outcome is unknown")

// Problem is a refusal. Code is the contract; texts are for people and may change.
type Problem struct {
	Status   int    `json:"status"` // of HTTP
	Code     string `json:"code"`   // such as REQUEST_ID_CONFLICT; "" where the answer was none of Fencepost's
	Title    string `json:"title"`
	Detail   string `json:"detail"`
	Field    string `json:"field"`    // the field or parameter at fault; "": none
	Instance string `json:"instance"` // the request in the service's log

	// Of a transfer that exists: ReqID, and where it has failed State and Message too.
	ReqID   string        `json:"req_id"`
	State   TransferState `json:"state"`
	Message string        `json:"message"`

	Left       string     `json:"left"`        // of DAILY_PAYOUT_EXCEEDED: how much can still be paid out; "": not told
	UsableFrom *time.Time `json:"usable_from"` // of ADDRESS_NOT_YET_USABLE: when the address can be paid; nil: not told

	RetryAfter time.Duration `json:"-"` // what the answer told; 0: nothing
}

// Error is the problem for a person.
func (p *Problem) Error() string {
	text := fmt.Sprint(p.Status)
	for _, part := range []string{p.Code, p.Field, p.ReqID, p.Detail} {
		if part != "" {
			text += " " + part
		}
	}
	return strings.TrimSpace(text)
}

// CodeOf is the code of the [Problem] in err; "": there is none.
func CodeOf(err error) string {
	var p *Problem
	if errors.As(err, &p) {
		return p.Code
	}
	return ""
}

// unknown says that the status tells nothing about what was asked.
func (p *Problem) unknown() bool {
	return p.Status >= http.StatusInternalServerError || p.Status == http.StatusRequestTimeout || p.Code == ""
}

// later says that the same may be answered otherwise later.
func (p *Problem) later() bool {
	return p.Status >= http.StatusInternalServerError || p.Status == http.StatusRequestTimeout ||
		p.Status == http.StatusTooManyRequests || p.RetryAfter > 0
}

// final says that the refusal holds for every earlier attempt of the call as well: a
// transfer exists and has failed, or the key is another request's for ever.
func (p *Problem) final() bool {
	return p.Status == http.StatusUnprocessableEntity && p.ReqID != "" || p.Code == "REQUEST_ID_CONFLICT" || p.Code == "CID_CONFLICT"
}
