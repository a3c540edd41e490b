package admin

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// call is an operator's call about a subject that its path names.
type call[S, B any] struct {
	by     string // the operator
	on     S      // the subject
	body   B
	reason string // empty if [withBody] has read the call
}

type submitterCall[B any] = call[txmanager.Submitter, B]

// reasonRequest is a body, or the part of one, that gives the reason of an act.
type reasonRequest struct {
	Reason string `json:"reason"`
}

func (b reasonRequest) given() string { return b.Reason }

// withBody serves an operator's call with a body. The function subject reads the path.
func withBody[S, B any](a *Desk, subject func(*http.Request) (S, error), do func(http.ResponseWriter, *http.Request, call[S, B]) error) serve.Handler {
	return serve.By(a.operator, func(w http.ResponseWriter, r *http.Request, by string) error {
		return serve.By(subject, serve.WithBody(a.Base, func(w http.ResponseWriter, r *http.Request, on S, body B) error {
			return do(w, r, call[S, B]{by: by, on: on, body: body})
		}))(w, r)
	})
}

// withReason is [withBody] for a call whose reason is checked before the rest of its body.
func withReason[S any, B interface{ given() string }](a *Desk, subject func(*http.Request) (S, error), do func(http.ResponseWriter, *http.Request, call[S, B]) error) serve.Handler {
	return withBody(a, subject, func(w http.ResponseWriter, r *http.Request, c call[S, B]) (err error) {
		if c.reason, err = reasonOf(c.body.given()); err != nil {
			return err
		}
		return do(w, r, c)
	})
}

// show serves a call that answers what read returns.
func show[T any](read func(*http.Request) (T, error)) serve.Handler {
	return serve.Show(noSubject, func(r *http.Request, _ struct{}) (T, error) { return read(r) })
}

// list is [show] for a page of a list. The query may have the parameters of pages, and those of the given names.
func list[T any](read func(r *http.Request, q map[string]string) (T, error), names ...string) serve.Handler {
	return serve.ShowList(noSubject, func(r *http.Request, _ struct{}, q map[string]string) (T, error) { return read(r, q) }, names...)
}

// noSubject is the subject of a call whose path names none.
func noSubject(*http.Request) (none struct{}, _ error) { return none, nil }

// pathSubmitter returns the submitter in the path.
func (a *Desk) pathSubmitter(r *http.Request) (txmanager.Submitter, error) {
	return a.Submitter("submitter", r.PathValue("submitter"))
}

// pathNumber returns the number of a thing in the path.
func pathNumber(name, otherwise string) func(*http.Request) (int64, error) {
	return func(r *http.Request) (int64, error) {
		n, ok := serve.Digits(r.PathValue(name))
		if !ok {
			return 0, web.FieldProblem(name, "%s", otherwise)
		}
		return n, nil
	}
}

// reasonOf checks an operator's reason.
func reasonOf(text string) (string, error) {
	reason := strings.TrimSpace(text)
	if reason == "" || len(reason) > serve.MaxReason {
		return "", web.FieldProblem("reason", "is required, in at most %d bytes: it is stored with your name", serve.MaxReason)
	}
	return reason, nil
}

// proposeIf proposes the act, unless hindrance names a reason against it in the state that the act depends on. The error
// unknown is the answer if the act's subject does not exist.
func proposeIf[T any](a *Desk, w http.ResponseWriter, r *http.Request, what proposed, unknown error, hindrance func(now T) error) error {
	state, err := a.Store.ActState(r.Context(), what.act, what.subject)
	switch {
	case err != nil:
		return err
	case state == nil:
		return unknown
	}
	var now T
	if err := json.Unmarshal(state, &now); err != nil {
		return err
	}
	if err := hindrance(now); err != nil {
		return err
	}
	return a.propose(w, r, what)
}
