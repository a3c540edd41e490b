package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
)

// Page selects one page of a list, and has the place of the next one.
type Page struct {
	Token string // where the page begins: Next of the page before; "": the first page
	Next  string // of the next page, once the page was read; "": this was the last
}

type pageKey struct{}

// WithPage returns a context for one list call. With it a method such as [Client.ListActs] yields the rows of
// the page p alone, and sets p.Next before the first row.
func WithPage(ctx context.Context, p *Page) context.Context {
	return context.WithValue(ctx, pageKey{}, p)
}

// pages yields the rows of the list at the path, which are in the member of the answer, and fetches pages as needed. It ends at the
// first error and after the last page. A page can be empty and not be the last.
func pages[T any](ctx context.Context, c *Client, path, member string, values url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		only, _ := ctx.Value(pageKey{}).(*Page)
		if only != nil && only.Token != "" {
			values.Set("pageToken", only.Token)
		}
		for {
			rows, next, err := page[T](ctx, c, path, member, values)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			if only != nil {
				only.Next, next = next, ""
			}
			for _, one := range rows {
				if !yield(one, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			values.Set("pageToken", next)
		}
	}
}

// page fetches one page, and the token of the next; "": there is none.
func page[T any](ctx context.Context, c *Client, path, member string, values url.Values) (rows []T, next string, err error) {
	q := request{method: http.MethodGet, path: path, query: values}
	answer, err := call[map[string]json.RawMessage](ctx, c, q)
	if err != nil {
		return nil, "", err
	}
	for name, into := range map[string]any{member: &rows, "nextPageToken": &next} {
		if text := answer[name]; text != nil && err == nil {
			err = json.Unmarshal(text, into)
		}
	}
	if err != nil {
		return nil, "", callError(q, fmt.Errorf("%w: %s: %w", ErrUnknown, member, err), true)
	}
	return rows, next, nil
}
