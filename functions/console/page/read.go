package page

import (
	"cmp"
	"iter"
	"maps"
	"net/url"
	"time"
)

// ReadRows reads a list to its end, which with the context of client.WithPage is one page.
func ReadRows[T any](list iter.Seq2[T, error]) (rows []T, err error) {
	for row, err := range list {
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// WhyUnread returns why a part of a page cannot be drawn; "": it can. The text of an error that is no refusal stays secret.
func WhyUnread(err error) string {
	if err == nil {
		return ""
	}
	refusal := RefusalOf(err)
	if refusal.Detail != "" && refusal.Code == "INVALID_FIELD" {
		return refusal.Field + " " + refusal.Detail // which goes on from the field's name
	}
	return cmp.Or(refusal.Detail, "the API did not answer in time")
}

// FilterPath is the path of a list with the fields of its filter that are not empty.
func FilterPath(path string, fields map[string]string) string {
	values := url.Values{}
	for name, text := range fields {
		if text != "" {
			values.Set(name, text)
		}
	}
	return path + "?" + values.Encode()
}

// NextPath is [FilterPath] of the list's page that the token begins; "" for no token.
func NextPath(path, token string, fields map[string]string) string {
	if token == "" {
		return ""
	}
	fields = maps.Clone(fields)
	fields["pageToken"] = token
	return FilterPath(path, fields)
}

// TimeField is the form of a time in a field for one, in UTC.
const TimeField = "2006-01-02T15:04:05"

// Since reads the field "since" of a filter: a date, with or without a time, in UTC, or a time as in RFC 3339. "" is the
// zero time. The error says what to enter.
func Since(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{"2006-01-02T15:04", TimeField, time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(form, text); err == nil && t.Unix() >= 0 {
			return t.UTC(), nil
		}
	}
	return time.Time{}, Refuse("since", "Give a date and time in UTC from 1970 on, such as 2026-01-02T15:04.")
}
