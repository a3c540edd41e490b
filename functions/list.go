package functions

import (
	"encoding/base64"
	"errors"
	"net/http"
	"slices"

	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// The number of rows on a page of a list.
const (
	listDefault = 50
	listMost    = 500
)

type listResponse struct {
	Transactions  []listedTx `json:"transactions"`
	NextPageToken string     `json:"nextPageToken,omitempty"` // absent on the last page
}

// listedTx is a transaction in a list. Only an operator is shown the nonce.
type listedTx struct {
	store.Listed
	Nonce *int64 `json:"nonce,omitempty"`

	LastErrorDetail *string `json:"lastErrorDetail,omitempty"`
}

// list shows a submitter's transactions, newest first and one page a call. A caller sees its own, an
// operator sees all. An intent's absence proves nothing; only GET …/by-request does.
func (a *App) list(w http.ResponseWriter, r *http.Request) error {
	v, err := a.viewer(r)
	if err != nil {
		return err
	}
	q, err := parameters(r, "submitter", "state", "pageSize", "pageToken")
	if err != nil {
		return err
	}
	query := store.ListQuery{State: txmanager.State(q["state"])}
	if query.Submitter, err = a.submitter("submitter", q["submitter"]); err != nil {
		return err
	}
	if query.State != "" && !slices.Contains(txmanager.States(), query.State) {
		return web.FieldProblem("state", "is no state: want one of %v", txmanager.States())
	}
	if query.Size, query.After, err = pageOf(q, txPlace); err != nil {
		return err
	}
	page, next, err := a.store.List(r.Context(), query, v)
	if errors.Is(err, store.ErrCursor) {
		return noSuchPage()
	}
	if err != nil {
		return err
	}
	out := listResponse{Transactions: make([]listedTx, len(page)), NextPageToken: pageToken(next, txPlace)}
	for i, one := range page {
		out.Transactions[i].Listed = one
		if v.Operator {
			out.Transactions[i].Nonce, out.Transactions[i].LastErrorDetail = one.Nonce, one.LastErrorDetail
		}
	}
	web.Reply(w, r, http.StatusOK, out)
	return nil
}

type transfersResponse struct {
	Transfers     []transferView `json:"transfers"`
	NextPageToken string         `json:"next_page_token,omitempty"` // absent on the last page
}

// listTransfers shows a user's own transfers and payouts, newest first and one page a call.
func (a *App) listTransfers(w http.ResponseWriter, r *http.Request) error {
	user, err := a.user(r)
	if err != nil {
		return err
	}
	q, err := parameters(r, "state", "pageSize", "pageToken")
	if err != nil {
		return err
	}
	query := transfers.ListQuery{UserID: user}
	if q["state"] != "" {
		states := transfer.States()
		i := slices.IndexFunc(states, func(s transfer.State) bool { return s.String() == q["state"] })
		if i < 0 {
			return web.FieldProblem("state", "is no state: want one of %v", states)
		}
		query.State = &states[i]
	}
	if query.Size, query.After, err = pageOf(q, transferPlace); err != nil {
		return err
	}
	page, next, err := a.transfers.store.List(r.Context(), query)
	if errors.Is(err, transfers.ErrCursor) {
		return noSuchPage()
	}
	if err != nil {
		return err
	}
	out := transfersResponse{Transfers: make([]transferView, len(page)), NextPageToken: pageToken(next, transferPlace)}
	for i, t := range page {
		out.Transfers[i] = viewOf(t)
	}
	web.Reply(w, r, http.StatusOK, out)
	return nil
}

// place is the position of a list's next page: after the row of this id, which is the caller's own.
// Rows are never deleted, so tokens never expire.
type place struct {
	version byte // the first byte of a token; it ties the token to its list
	write   func(id string) ([16]byte, error)
	read    func([16]byte) string
}

var (
	txPlace = place{1,
		func(id string) ([16]byte, error) { u, err := uuid.Parse(id); return u, err },
		func(b [16]byte) string { return uuid.UUID(b).String() }}
	transferPlace = place{2,
		func(id string) ([16]byte, error) { u, err := ulid.ParseStrict(id); return u, err },
		func(b [16]byte) string { return ulid.ULID(b).String() }}
)

// tokens encodes page tokens; each token has exactly one text.
var tokens = base64.RawURLEncoding.Strict()

// pageToken returns the token of the page after the row of this id; "" means that the list ends there.
func pageToken(id string, p place) string {
	b, err := p.write(id)
	if id == "" || err != nil {
		return ""
	}
	return tokens.EncodeToString(append([]byte{p.version}, b[:]...))
}

// pageOf returns the requested page size and the row after which the page begins.
func pageOf(q map[string]string, p place) (size int, after string, err error) {
	size = listDefault
	if text := q["pageSize"]; text != "" {
		n, ok := digits(text)
		if !ok || n < 1 || n > listMost {
			return 0, "", web.FieldProblem("pageSize", "is %.40q: want 1 to %d", text, listMost)
		}
		size = int(n)
	}
	if q["pageToken"] == "" {
		return size, "", nil
	}
	b, err := tokens.DecodeString(q["pageToken"])
	if err != nil || len(b) != 17 || b[0] != p.version {
		return 0, "", noSuchPage()
	}
	return size, p.read([16]byte(b[1:])), nil
}

func noSuchPage() error {
	return web.FieldProblem("pageToken", "is none of this list: want what the page before has told, or leave it out for the first page")
}
