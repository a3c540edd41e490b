package transactions

import (
	"regexp"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/web"
)

// timestamp matches RFC 3339 with an offset, in upper case and with at most microseconds, which is
// what the database stores.
var timestamp = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// validUntil returns the time of the field; nil if the body omits it.
func validUntil(field serve.Optional) (*time.Time, error) {
	text, err := field.Of("validUntil")
	if err != nil || text == "" {
		return nil, err
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if at = at.UTC(); err != nil || !timestamp.MatchString(text) || at.Year() < 1970 || at.Year() > 9999 {
		return nil, web.FieldProblem("validUntil", "is %.40q: want a time by RFC 3339 with its offset and at most 6 digits of a second, such as 2027-01-31T12:00:00Z", text)
	}
	return &at, nil
}
