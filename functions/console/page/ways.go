package page

import (
	"cmp"
	"errors"
	"strings"

	"github.com/fencepost/fencepost/shared/client"
)

// Unknown is the way on after an act without a definite answer. It comes before every text of a code: a refusal of a
// repetition, such as TOO_LATE, can be the effect of the first attempt.
const Unknown = "It is not known whether it was carried out. Read the state before you do it again."

// Ways are texts that say how to go on after an act was refused.
type Ways struct {
	Fields map[string]string // by the field that the refusal names
	Codes  map[string]string // by the refusal's code, where no field has a text
	Causes map[string]string // by the code of an act without a definite answer, after [Unknown]
}

// After returns the way on after the error; "": its own text says enough, or there was none.
func (w Ways) After(err error) string {
	code := client.CodeOf(err)
	if errors.Is(err, client.ErrUnknown) {
		return strings.TrimSpace(Unknown + " " + w.Causes[code])
	}
	return cmp.Or(w.Fields[RefusalOf(err).Field], w.Codes[code])
}

// RefusalOf is the refusal in the error. If there is none its members are empty.
func RefusalOf(err error) client.Problem {
	if p, ok := errors.AsType[*client.Problem](err); ok {
		return *p
	}
	return client.Problem{}
}

// StatusOf is the HTTP status of a page that shows the error; 0: there is none.
func StatusOf(err error) int {
	if err == nil {
		return 0
	}
	return problemOf(err).Status
}
