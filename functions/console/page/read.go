package page

import (
	"errors"
	"iter"

	"github.com/fencepost/fencepost/shared/client"
)

// ReadRows reads a list to its end, which with [client.WithPage] is one page.
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
	var p *client.Problem
	switch {
	case err == nil:
		return ""
	case errors.As(err, &p) && p.Detail != "" && p.Code == "INVALID_FIELD":
		return p.Field + " " + p.Detail // which goes on from the field's name
	case errors.As(err, &p) && p.Detail != "":
		return p.Detail
	}
	return "the API did not answer in time"
}
