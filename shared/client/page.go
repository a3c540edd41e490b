package client

import "context"

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
