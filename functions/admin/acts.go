package admin

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/web"
)

// readOnly refuses an act of a viewer.
var readOnly = web.Code{Name: "READ_ONLY", Status: http.StatusForbidden}

// operator returns the operator, or the viewer who only reads, that calls an admin function. It logs each
// call that can change something before the call does so.
func (a *Desk) operator(r *http.Request) (string, error) {
	c := callOf(r)
	if c.approved != nil {
		return c.by, nil
	}
	v, err := a.AdminViewer(r)
	if err != nil {
		return "", err
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case v.Operator, v.ReadOnly && reads:
	case v.ReadOnly:
		return "", web.NewProblem(readOnly, "a viewer may only read; nothing was changed: ask an operator")
	default:
		return "", web.NewProblem(web.Forbidden, "only operators may call admin functions")
	}
	if !reads {
		a.LogOperator(r, v)
	}
	c.by, c.names = v.Caller, operatorNames(v)
	return v.Caller, nil
}

// oneOperator is the kind of an act that one operator may always do.
const oneOperator = ""

// act serves an operator call that can change something. If approvals.required names the kind, a second operator must
// approve the act: docs/approvals.md has the reason for each kind. It also registers the call in a.acts, through
// which [Desk.carryOut] carries out approved proposals.
func (a *Desk) act(mux *web.Mux, pattern, kind string, h serve.Handler) {
	a.answer(mux, pattern, func(w http.ResponseWriter, r *http.Request) error {
		c := &adminCall{kind: kind}
		if slices.Contains(a.Approvals.Required, c.kind) {
			c.needsTwo = true
			r.Body = io.NopCloser(io.TeeReader(r.Body, &c.body))
		}
		return h(w, r.WithContext(context.WithValue(r.Context(), adminCallKey{}, c)))
	})
	if kind == oneOperator {
		return
	}
	a.acts.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			callOf(r).failed = carryError{a.problem(err), err}
		}
	})
}

// read serves an operator's call that changes nothing.
func (a *Desk) read(mux *web.Mux, pattern string, h serve.Handler) {
	a.answer(mux, pattern, serve.By(a.operator, func(w http.ResponseWriter, r *http.Request, _ string) error { return h(w, r) }))
}

// answer serves a call, and answers an error by a.problem.
func (a *Desk) answer(mux *web.Mux, pattern string, h serve.Handler) {
	a.Handle(mux, "admin", pattern, func(w http.ResponseWriter, r *http.Request) error {
		if err := h(w, r); err != nil {
			web.Fail(w, r, a.problem(err))
		}
		return nil
	})
}

// adminCall is an operator's call while it is being served.
type adminCall struct {
	kind     string
	needsTwo bool         // the call is only proposed
	body     bytes.Buffer // the request body as sent, if the call can be proposed

	by    string   // the operator
	names []string // all names in the operator's token

	approved *store.Proposal // the proposal that this call carries out; nil: the operator's own call

	failed error // a [carryError] of a call that carries out a proposal; nil: it has succeeded
}

type adminCallKey struct{}

// callOf returns the admin call of r, or an empty one if r has none.
func callOf(r *http.Request) *adminCall {
	if c, ok := r.Context().Value(adminCallKey{}).(*adminCall); ok {
		return c
	}
	return new(adminCall)
}

// mustPropose reports whether the call only proposes its act.
func mustPropose(r *http.Request) bool { return callOf(r).needsTwo }

// claimedEmail begins the name of an address that may not be verified. Such a name makes no operator, and
// shows only that two persons are one.
const claimedEmail = "claimed:"

// operatorNames returns every name of the caller in v, since one person can have several. Addresses
// are compared without letter case. One that is not verified is compared too: it is all that the tokens
// of two issuers have in common.
func operatorNames(v store.Viewer) (names []string) {
	if v.Email != "" {
		names = append(names, claimedEmail+strings.ToLower(v.Email))
	}
	for _, name := range v.Names {
		switch {
		case strings.HasPrefix(name, store.SubjectCaller):
			names = append(names, name)
		case strings.HasPrefix(name, store.EmailCaller):
			names = append(names, name, strings.ToLower(name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
