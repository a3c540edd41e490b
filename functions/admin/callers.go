package admin

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/web"
)

// maxCallers is the most callers of one submitter.
const maxCallers = 1000

// parseCallers checks the callers that may post for a submitter.
func (a *Server) parseCallers(names []string) ([]string, error) {
	switch n := len(names); {
	case n == 0:
		return nil, web.FieldProblem("callers", `is required: the callers that may post intents, such as ["email:shop@example.com"] by a verified e-mail, or ["sub:103482…"] by a token's subject`)
	case n > maxCallers:
		return nil, web.FieldProblem("callers", "has %d: want at most %d", n, maxCallers)
	case n > 1 && slices.Contains(names, store.PayoutCaller):
		return nil, web.FieldProblem("callers", "names %q, the transfer coordinator, among others: another caller could use a payout's requestId; list it alone", store.PayoutCaller)
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, web.FieldProblem("callers", "names %q twice", name)
		}
		if err := a.checkCaller(name); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// checkCaller checks one caller name.
func (a *Server) checkCaller(name string) error {
	handler, isHandler := cutHandler(name)
	switch {
	case name == store.AnyCaller && a.Auth.OpenIssuer:
		p := web.NewProblem(serve.CallersOpen, "\"*\" is everybody who can have a token of the issuer, and that is open: name the callers, or set auth.openIssuer to false where strangers can have no token")
		p.Field = "callers"
		return p
	case name == store.AnyCaller, name == store.PayoutCaller, name == store.HooksCaller, isHandler && handler != "", serve.CallerName.MatchString(name):
		return nil
	case serve.CallerName.MatchString(store.FullCaller(name)):
		return web.FieldProblem("callers", "has %.100q, which names no kind of caller: write %q", name, store.FullCaller(name))
	}
	return web.FieldProblem("callers", "has %.100q: want email:<verified e-mail>, sub:<subject of the token>, %q, handler:<name>, or %q", name, store.HooksCaller, store.PayoutCaller)
}

func cutHandler(name string) (handler string, ok bool) {
	const n = len(store.HandlerCaller)
	if len(name) < n || name[:n] != store.HandlerCaller {
		return "", false
	}
	return name[n:], true
}

// Spellings returns every spelling under which stored transactions can have these callers.
func Spellings(names []string) (all []string) {
	for _, n := range names {
		all = append(all, store.Spellings(store.FullCaller(n))...)
	}
	return all
}

type callersRequest struct {
	Callers  []string          `json:"callers"`
	Succeeds map[string]string `json:"succeeds"`
	Reason   string            `json:"reason"`
}

// putCallers replaces the list of callers that may post for a submitter.
func (a *Server) putCallers(w http.ResponseWriter, r *http.Request, in submitterCall[callersRequest]) (err error) {
	c, body := store.CallersChange{By: in.by, Submitter: in.on}, in.body
	if c.Callers, err = a.parseCallers(body.Callers); err != nil {
		return err
	}
	if c.Succeeds, err = parseSuccessions(body.Succeeds); err != nil {
		return err
	}
	if c.Reason, err = reasonOf(body.Reason); err != nil {
		return err
	}
	c.OnlyFewer = mustPropose(r)
	token, changed, err := a.Store.PutCallers(r.Context(), c)
	if errors.Is(err, store.ErrNotTighter) {
		return a.propose(w, r, proposed{"callers", submitterSubject(c.Submitter), c.Reason, fmt.Sprintf("sets the callers of %s to %s", c.Submitter, strings.Join(c.Callers, ", "))})
	}
	if err != nil {
		return err
	}
	if changed {
		a.Log.WarnContext(r.Context(), "callers set", telemetry.SubmitterKey, c.Submitter, "callers", c.Callers, "succeeds", c.Succeeds, "operator", c.By, "reason", c.Reason)
	}
	a.advance(r.Context(), c.Submitter, token)
	return a.replySubmitter(w, r, c.Submitter)
}

// parseSuccessions checks which caller succeeds which. Both must be names that a token can have.
func parseSuccessions(of map[string]string) (map[string]string, error) {
	for _, successor := range slices.Sorted(maps.Keys(of)) {
		for _, name := range []string{successor, of[successor]} {
			if !serve.CallerName.MatchString(name) {
				return nil, web.FieldProblem("succeeds", `has %.100q: want {"<new>": "<old>"}, each an email:<verified e-mail> or a sub:<subject>`, name)
			}
		}
	}
	return of, nil
}
