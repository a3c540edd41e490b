package functions

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/web"
)

func (a *App) routeQuery(mux *web.Mux) {
	a.handle(mux, "query", "GET /api/v1/tx/{txId}", a.queryByID)
	a.handle(mux, "query", "GET /api/v1/tx/by-request", a.queryByRequest)
	a.handle(mux, "events", "GET /api/v1/events", a.replay)
}

// txResponse is a transaction on the wire. Only an operator is shown the nonce and the members that
// reveal it.
type txResponse struct {
	store.Record
	Nonce   *int64          `json:"nonce,omitempty"`
	Mempool json.RawMessage `json:"mempool,omitempty"`

	LastErrorDetail *string `json:"lastErrorDetail,omitempty"`
}

func (a *App) queryByID(w http.ResponseWriter, r *http.Request) error {
	v, err := a.viewer(r)
	if err != nil {
		return err
	}
	id, err := pathTxID(r)
	if err != nil {
		return err
	}
	rec, err := a.store.Tx(r.Context(), id, v)
	return reply(w, r, rec, v, err)
}

func (a *App) queryByRequest(w http.ResponseWriter, r *http.Request) error {
	v, err := a.viewer(r)
	if err != nil {
		return err
	}
	q, err := parameters(r, "submitter", "requestId")
	if err != nil {
		return err
	}
	s, err := a.submitter("submitter", q["submitter"])
	if err != nil {
		return err
	}
	if err := requestID("requestId", q["requestId"]); err != nil {
		return err
	}
	rec, err := a.store.TxByRequest(r.Context(), s, q["requestId"], v)
	return reply(w, r, rec, v, err)
}

func reply(w http.ResponseWriter, r *http.Request, rec store.Record, v store.Viewer, err error) error {
	if err != nil {
		return err
	}
	out := txResponse{Record: rec}
	if v.Operator {
		out.Nonce, out.Mempool, out.LastErrorDetail = rec.Nonce, rec.Mempool, rec.LastErrorDetail
	}
	web.Reply(w, r, http.StatusOK, out)
	return nil
}

// parameters reads a query string that may contain only the given names, each at most once and with a
// value. "" means that the parameter is absent.
func parameters(r *http.Request, names ...string) (map[string]string, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, web.NewProblem(web.InvalidField, "the query string is malformed: use percent-encoding")
	}
	found := make(map[string]string, len(names))
	for _, name := range names {
		if len(values[name]) > 1 {
			return nil, web.FieldProblem(name, "stands %d times: give it once", len(values[name]))
		}
		if found[name] = values.Get(name); !utf8.ValidString(found[name]) || strings.ContainsRune(found[name], 0) {
			return nil, web.FieldProblem(name, "is not text: want UTF-8 without the character U+0000, percent-encoded")
		}
		if values.Has(name) && found[name] == "" {
			return nil, web.FieldProblem(name, "is empty: give it a value; what you do not need is left out, with its name")
		}
		delete(values, name)
	}
	for name := range values {
		p := web.NewProblem(web.UnsupportedField, "no such parameter; known are %q", names)
		p.Field = name
		return nil, p
	}
	return found, nil
}

// digits reads a number that is not negative in its only form: no sign and no leading zeros.
func digits(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0 && strconv.FormatInt(n, 10) == text
}
