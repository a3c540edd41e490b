package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
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
	handler, isHandler := strings.CutPrefix(name, store.HandlerCaller)
	switch {
	case name == store.AnyCaller && a.Auth.OpenIssuer:
		return &web.Problem{Code: serve.CallersOpen, Field: "callers",
			Detail: "\"*\" is everybody who can have a token of the issuer, and that is open: name the callers, or set auth.openIssuer to false where strangers can have no token"}
	case name == store.AnyCaller, name == store.PayoutCaller, name == store.HooksCaller, isHandler && handler != "", serve.CallerName.MatchString(name):
		return nil
	case serve.CallerName.MatchString(store.FullCaller(name)):
		return web.FieldProblem("callers", "has %.100q, which names no kind of caller: write %q", name, store.FullCaller(name))
	}
	return web.FieldProblem("callers", "has %.100q: want email:<verified e-mail>, sub:<subject of the token>, %q, handler:<name>, or %q", name, store.HooksCaller, store.PayoutCaller)
}

// Spellings returns every spelling under which stored transactions can have these callers.
func Spellings(names []string) (all []string) {
	for _, n := range names {
		all = append(all, store.Spellings(store.FullCaller(n))...)
	}
	return all
}

type callersRequest struct {
	reasonRequest
	Callers  []string          `json:"callers"`
	Succeeds map[string]string `json:"succeeds"`
}

// putCallers replaces the list of callers that may post for a submitter.
func (a *Server) putCallers(w http.ResponseWriter, r *http.Request, in submitterCall[callersRequest]) (err error) {
	c, body := store.CallersChange{By: in.by, Reason: in.reason, Submitter: in.on, OnlyFewer: mustPropose(r)}, in.body
	if c.Callers, err = a.parseCallers(body.Callers); err != nil {
		return err
	}
	if c.Succeeds, err = parseSuccessions(body.Succeeds); err != nil {
		return err
	}
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
	a.EnqueueAdvance(r.Context(), c.Submitter, token)
	return serve.Reply(w, r)(a.submitterNow(r.Context(), c.Submitter))
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

type updateRequest struct {
	reasonRequest
	client.SubmitterUpdate
}

// maxName is the most characters of a submitter's name.
const maxName = 100

// describeUpdate is what u does, for the operator who approves it.
func describeUpdate(u store.SubmitterUpdate) string {
	text := fmt.Sprintf("sets the window of %s to %d", u.Submitter, *u.MaxInFlight)
	if u.Name != nil {
		text += fmt.Sprintf(", and its name to %q", *u.Name)
	}
	return text
}

// updateSubmitter changes a submitter's window or name.
func (a *Server) updateSubmitter(w http.ResponseWriter, r *http.Request, c submitterCall[updateRequest]) error {
	u := store.SubmitterUpdate{Submitter: c.on, MaxInFlight: c.body.MaxInFlight, Name: c.body.Name, By: c.by, Reason: c.reason, OnlyNarrower: mustPropose(r)}
	if err := a.checkUpdate(u); err != nil {
		return err
	}
	token, changed, err := a.Store.UpdateSubmitter(r.Context(), u)
	if errors.Is(err, store.ErrNotTighter) {
		return a.propose(w, r, proposed{"update", submitterSubject(c.on), c.reason, describeUpdate(u)})
	}
	if err != nil {
		return err
	}
	if changed {
		a.Log.WarnContext(r.Context(), "submitter updated", telemetry.SubmitterKey, c.on, "maxInFlight", u.MaxInFlight, "name", u.Name, "operator", c.by, "reason", c.reason)
	}
	a.EnqueueAdvance(r.Context(), c.on, token)
	return serve.Reply(w, r)(a.submitterNow(r.Context(), c.on))
}

func (a *Server) checkUpdate(u store.SubmitterUpdate) error {
	if u.MaxInFlight == nil && u.Name == nil {
		return web.FieldProblem("maxInFlight", "and name are missing: give at least one of them")
	}
	if n := u.Name; n != nil && (utf8.RuneCountInString(*n) > maxName || strings.TrimSpace(*n) != *n || strings.ContainsFunc(*n, unicode.IsControl)) {
		return web.FieldProblem("name", "is %.120q: want at most %d characters without control characters, and without spaces at either end; an empty name removes it", *n, maxName)
	}
	if u.MaxInFlight == nil {
		return nil
	}
	return a.checkWindow(*u.MaxInFlight)
}

// listChanges lists the recorded changes of a submitter, newest first.
func (a *Server) listChanges(r *http.Request, s txmanager.Submitter, q map[string]string) (serve.List, error) {
	return serve.PageList("changes", q, serve.ChangePlace, func(below int64, limit int) ([]store.SubmitterChange, error) {
		return a.Store.Changes(r.Context(), s, below, limit)
	}, func(c store.SubmitterChange) int64 { return c.ID })
}

// listIncidents lists the PROTECT incidents of a submitter with their evidence, newest first.
func (a *Server) listIncidents(r *http.Request, s txmanager.Submitter, q map[string]string) (serve.List, error) {
	return serve.PageList("incidents", q, serve.IncidentPlace, func(below int64, limit int) ([]store.ProtectIncident, error) {
		return a.Store.Incidents(r.Context(), s, min(below, math.MaxInt32), limit)
	}, func(i store.ProtectIncident) int64 { return int64(i.Incident) })
}

type signerRequest struct {
	reasonRequest
	Signer string `json:"signer"`
}

// changeSigner replaces the signer of an account, by an operator's decision after the key has moved.
// The account stays the same, so both signers produce versions for the same nonces. The call needs no
// lease: an invocation that holds it keeps the signer that it loaded at acquisition.
func (a *Server) changeSigner(w http.ResponseWriter, r *http.Request, c submitterCall[signerRequest]) error {
	to := store.SignerChange{Submitter: c.on, Signer: c.body.Signer, By: c.by, Reason: c.reason}
	if _, err := a.Checker(to.Signer); err != nil {
		return web.FieldProblem("signer", "is %v", err)
	}
	switch known, err := a.Store.Submitter(r.Context(), c.on); {
	case err != nil:
		return err
	case known.Retired():
		return store.ErrRetired
	}
	if err := a.signerHasIt(r, c.on, to.Signer); err != nil {
		return err
	}
	if mustPropose(r) {
		return a.propose(w, r, proposed{"signer", submitterSubject(c.on), c.reason, fmt.Sprintf("has %s sign for %s", to.Signer, c.on)})
	}
	from, changed, err := a.Store.ChangeSigner(r.Context(), to)
	if err != nil {
		return err
	}
	if changed {
		a.Log.WarnContext(r.Context(), "signer changed", telemetry.SubmitterKey, c.on, telemetry.NodeIDKey, a.Node,
			"from", from, "to", to.Signer, "operator", c.by, "reason", to.Reason)
	}
	return serve.Reply(w, r)(a.submitterNow(r.Context(), c.on))
}

// signerHasIt refuses a signer without a key of the account. The chain would reject its signatures,
// and the nonce would stay blocked for ever.
func (a *Server) signerHasIt(r *http.Request, s txmanager.Submitter, name string) error {
	service, err := a.Checker(name)
	if err == nil {
		err = service.Check(r.Context(), s)
	}
	switch {
	case errors.Is(err, signer.ErrNoKey):
		return web.FieldProblem("signer", "cannot sign for the account: %v", err)
	case err != nil:
		return web.UnavailableBecause(err, "the signer could not be asked for the account; nothing was changed")
	}
	return nil
}

// maxForbiddenChecked is the most queued intents that are evaluated to inform an operator.
const maxForbiddenChecked = 500

// submitterNow is a submitter with the number of its queued intents that its policy and callers now
// forbid.
type submitterNow struct {
	store.SubmitterView
	Forbidden *int         `json:"forbidden,omitempty"` // among the first maxForbiddenChecked intents without a nonce; nil: unknown
	Chain     *accountView `json:"chain,omitempty"`     // nil: the answer of an act
}

// showSubmitter answers with the submitter's present state, here and on its chain.
func (a *Server) showSubmitter(r *http.Request, s txmanager.Submitter) (submitterNow, error) {
	now, err := a.submitterNow(r.Context(), s)
	if err == nil {
		now.Chain = a.viewAccount(r.Context(), s)
	}
	return now, err
}

// submitterNow returns the submitter's present state.
func (a *Server) submitterNow(ctx context.Context, s txmanager.Submitter) (now submitterNow, err error) {
	if now.SubmitterView, err = a.Store.Submitter(ctx, s); err != nil {
		return now, fmt.Errorf("show %s: %w", s, err)
	}
	switch n, err := a.forbidden(ctx, now.SubmitterView); {
	case err != nil: // the requested change is already stored
		a.Log.WarnContext(ctx, "the queue could not be evaluated", telemetry.SubmitterKey, s, "error", err.Error())
	default:
		now.Forbidden = &n
	}
	return now, nil
}

// forbidden counts the waiting intents that the submitter's policy and callers no longer allow. A
// resume would end these without a nonce.
func (a *Server) forbidden(ctx context.Context, view store.SubmitterView) (int, error) {
	if view.Queued == view.Held {
		return 0, nil
	}
	chain, err := a.ChainOf(view.Submitter)
	if err != nil {
		return 0, err
	}
	w, err := a.Store.Waiting(ctx, view.Submitter, maxForbiddenChecked)
	if err != nil {
		return 0, err
	}
	return chain.Rules.Forbidden(w, chain), nil
}
