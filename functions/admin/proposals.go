package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/web"
)

// The codes of the two-person rule.
var (
	sameOperator    = web.Code{Name: "SAME_OPERATOR", Status: http.StatusForbidden}
	proposerRemoved = web.Code{Name: "PROPOSER_REMOVED", Status: http.StatusConflict}
	proposalStale   = web.Code{Name: "PROPOSAL_STALE", Status: http.StatusConflict}
	proposalExpired = web.Code{Name: "PROPOSAL_EXPIRED", Status: http.StatusConflict}
)

// proposalView is a proposal with null, where the client has an empty text.
type proposalView struct {
	client.Proposal
	ApprovedBy    *string `json:"approvedBy"`
	ApproveReason *string `json:"approveReason"`
	ClosedBy      *string `json:"closedBy"` // the operator who rejected it
	CloseReason   *string `json:"closeReason"`
}

func viewOfProposal(p store.Proposal) proposalView {
	v := proposalView{ApprovedBy: p.ApprovedBy, ApproveReason: p.ApproveReason, ClosedBy: p.ClosedBy, CloseReason: p.CloseReason, Proposal: client.Proposal{
		ProposalID: p.ID, Status: p.Status, Kind: p.Kind, Act: p.Act, Subject: p.Subject, Effect: p.Effect, Method: p.Method, Path: p.Path, Body: json.RawMessage(p.Body),
		ObservedState: p.ObservedState, ObservedStateHash: p.ObservedStateHash, ProposedBy: p.By, Reason: p.Reason, CreatedAt: p.CreatedAt.UTC(), ExpiresAt: p.ExpiresAt.UTC(),
		ApprovedAt: utc(p.ApprovedAt), ClosedAt: utc(p.ClosedAt),
	}}
	if p.OutcomeStatus != nil {
		v.Outcome = &client.ActOutcome{Status: *p.OutcomeStatus}
		if p.Outcome != nil && *p.Outcome != "" {
			v.Outcome.Body = json.RawMessage(*p.Outcome)
		}
	}
	return v
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	return new(t.UTC())
}

// proposed is the act that an operator's call describes.
type proposed struct {
	act     string         // its name in the database's function proposal_state
	subject map[string]any // what the act is about
	reason  string
	effect  string // what the act would do
}

// propose stores the act of a call that passed its checks, and answers 202 with the proposal. It
// carries nothing out.
func (a *Desk) propose(w http.ResponseWriter, r *http.Request, what proposed) error {
	c := callOf(r)
	if err := a.isComparable(c.names); err != nil {
		return err
	}
	body, call, err := canonicalBody(c.body.Bytes())
	if err != nil {
		return err
	}
	reason := what.reason
	if reason == "" { // a registration at nonce 0 has no reason
		reason = what.effect
	}
	p, err := a.Store.Propose(r.Context(), store.NewProposal{
		Kind: c.kind, Act: what.act, Subject: what.subject, Method: r.Method, Path: r.URL.EscapedPath(), Body: body, Call: call,
		Effect: what.effect, By: c.by, Names: c.names, Reason: reason, ValidFor: a.Approvals.ValidFor,
	})
	if err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "an act is proposed", "proposalId", p.ID, "act", p.Act, "operator", c.by, "reason", what.reason, "effect", p.Effect, "expiresAt", p.ExpiresAt.UTC())
	w.Header().Set("Location", "/admin/v1/proposals/"+p.ID)
	return web.Reply(w, r, http.StatusAccepted, viewOfProposal(p))
}

// canonicalBody returns the body with sorted names, and the same without the reason. Two calls that
// differ only in the reason propose the same act.
func canonicalBody(text []byte) (body, call string, err error) {
	var members map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&members); err != nil {
		return "", "", fmt.Errorf("read the body again: %w", err)
	}
	whole, err := json.Marshal(members)
	if err != nil {
		return "", "", err
	}
	delete(members, "reason")
	bare, err := json.Marshal(members)
	return string(whole), string(bare), err
}

// listProposals lists the open proposals, or all, newest first.
func (a *Desk) listProposals(r *http.Request, q map[string]string) (serve.List, error) {
	if s := q["state"]; s != "" && s != "open" && s != "all" {
		return serve.List{}, web.FieldProblem("state", "is %.40q: want open or all", s)
	}
	page, next, err := serve.Page(q, serve.ProposalPlace, func(below int64, limit int) ([]store.Proposal, error) {
		return a.Store.Proposals(r.Context(), q["state"] != "all", below, limit)
	}, func(p store.Proposal) int64 { return p.Seq })
	return serve.List{Name: "proposals", Rows: serve.ViewsOf(page, viewOfProposal), Next: next}, err
}

func pathProposal(r *http.Request) (string, error) {
	id, ok := serve.ParseTxID(r.PathValue("proposalId"))
	if !ok {
		return "", web.FieldProblem("proposalId", "is not a proposalId; send the UUID that the proposal's own answer has, "+serve.UUIDForm)
	}
	return id, nil
}

func (a *Desk) proposal(r *http.Request, id string) (proposalView, error) {
	p, err := a.Store.Proposal(r.Context(), id)
	return viewOfProposal(p), err
}

// rejectProposal ends a proposal that is not carried out yet. The proposer withdraws a proposal with
// the same call.
func (a *Desk) rejectProposal(w http.ResponseWriter, r *http.Request, c call[string, reasonRequest]) error {
	was, err := a.Store.RejectProposal(r.Context(), c.on, c.by, c.reason)
	if err != nil {
		return err
	}
	if was != store.ProposalOpen && was != store.ProposalApproved && was != store.ProposalRejected {
		return web.NewProblem(serve.TooLate, "the proposal is %s; nothing was changed", was)
	}
	a.Log.WarnContext(r.Context(), "a proposal is rejected", "proposalId", c.on, "operator", c.by, "reason", c.reason)
	return serve.Reply(w, r)(a.proposal(r, c.on))
}

// approveProposal records a second operator's approval and carries the act out. If an operator other
// than the proposer calls it again, it continues from where it stopped or answers the stored outcome.
func (a *Desk) approveProposal(w http.ResponseWriter, r *http.Request, c call[string, reasonRequest]) error {
	p, err := a.Store.Proposal(r.Context(), c.on)
	if err != nil {
		return err
	}
	names := callOf(r).names
	if err := a.arePersons(p, names); err != nil {
		return err
	}
	if p.Status != store.ProposalCarriedOut && !slices.ContainsFunc(p.Names, func(name string) bool { return slices.Contains(a.Auth.Operators, name) }) {
		return web.NewProblem(proposerRemoved, "%s, the proposer, is no longer an operator: another operator must propose it again; nothing was changed", p.By)
	}
	verdict, state, err := a.Store.ApproveProposal(r.Context(), store.Approval{ProposalID: c.on, By: c.by, Names: names, Reason: c.reason})
	if err != nil {
		return err
	}
	switch verdict {
	case store.VerdictOpen:
		a.Log.WarnContext(r.Context(), "a proposal is approved", "proposalId", c.on, "act", p.Act, "proposedBy", p.By, "operator", c.by, "reason", c.reason)
		if err := a.notCarriedOut(r, p, a.carryOut(r, p)); err != nil {
			return err
		}
	case store.ProposalCarriedOut:
	default:
		return verdictProblem(verdict, p, state)
	}
	return serve.Reply(w, r)(a.proposal(r, c.on))
}

// isComparable refuses names without a verified address, if people sign in to the console at an issuer that
// has other subjects. By such names one person could propose here and approve there. An address that is not
// verified proves nothing, since its holder may have chosen it.
func (a *Desk) isComparable(names []string) error {
	if a.nameAPerson(names) {
		return nil
	}
	return web.NewProblem(web.Forbidden, "your token has no verified e-mail address, and the console's issuer has other subjects: it cannot be shown that two persons agree. "+
		"Ask for a token with a verified address, or act by the console; nothing was changed")
}

// arePersons refuses to approve p by these names where they, or those of its proposer, cannot be compared.
// A proposal that was carried out needs no comparison.
func (a *Desk) arePersons(p store.Proposal, names []string) error {
	if p.Status == store.ProposalCarriedOut {
		return nil
	}
	if !a.nameAPerson(p.Names) {
		return web.NewProblem(web.Forbidden, "the proposal was made by a token without a verified e-mail address, and the console's issuer has other subjects: "+
			"it cannot be shown that two persons agree. Reject it first, and let %s propose it again with such an address; nothing was changed", p.By)
	}
	return a.isComparable(names)
}

// nameAPerson reports whether the names can be compared with those of the console's issuer.
func (a *Desk) nameAPerson(names []string) bool {
	return a.People == nil || !a.People.WithoutSubject() || slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, store.EmailCaller) })
}

// verdictProblem returns the answer for a proposal that may not be carried out.
func verdictProblem(verdict string, p store.Proposal, state json.RawMessage) error {
	switch verdict {
	case store.VerdictSameOperator:
		return web.NewProblem(sameOperator, "you have proposed it, under the name %s: another operator has to approve it; nothing was changed", p.By)
	case store.VerdictForeign:
		return store.ErrForeign
	case store.ProposalExpired:
		return web.NewProblem(proposalExpired, "the proposal expired at %s: propose it anew; nothing was changed", p.ExpiresAt.UTC().Format(time.RFC3339))
	case store.ProposalStale:
		return web.NewProblem(proposalStale, "the state that the proposal was made in has changed: %s; nothing was changed; propose it again", changedSince(p.ObservedState, state))
	}
	return web.NewProblem(serve.TooLate, "the proposal is %s; nothing was changed", verdict)
}

// changedSince names the members that differ, with both values.
func changedSince(saw, now json.RawMessage) string {
	var before, after map[string]json.RawMessage
	_ = json.Unmarshal(saw, &before) // a value that is not an object has no members
	_ = json.Unmarshal(now, &after)
	var changed []string
	for name, was := range before {
		if is := after[name]; string(is) != string(was) {
			changed = append(changed, fmt.Sprintf("%s was %.300s and is %.300s", name, was, is))
		}
	}
	if len(changed) == 0 {
		return "the database was accepted anew, or the subject is gone"
	}
	slices.Sort(changed)
	return strings.Join(changed, "; ")
}

// carryOut makes the proposed call as its proposer, by the code that normally serves it. An act that
// is one transaction also closes the proposal in that transaction. The act's answer is stored
// afterwards.
func (a *Desk) carryOut(r *http.Request, p store.Proposal) error {
	c := &adminCall{kind: p.Kind, by: p.By, names: p.Names, approved: &p}
	ctx := store.WithProposal(context.WithValue(r.Context(), adminCallKey{}, c), p.ID)
	call, err := http.NewRequestWithContext(ctx, p.Method, p.Path, strings.NewReader(p.Body))
	if err != nil {
		return fmt.Errorf("make the call of proposal %s again: %w", p.ID, err)
	}
	call.Header.Set("Content-Type", "application/json")
	a.Points.At("proposal.approved")
	answer := &capturedResponse{header: http.Header{}}
	a.acts.ServeHTTP(answer, call)
	switch {
	case c.failed != nil:
		return c.failed
	case answer.status >= http.StatusBadRequest:
		return fmt.Errorf("the call of proposal %s is answered %d: %.300s", p.ID, answer.status, answer.body.Bytes())
	}
	a.Points.At("proposal.done")
	a.Log.WarnContext(ctx, "a proposal is carried out", "proposalId", p.ID, "act", p.Act, "proposedBy", p.By, "status", answer.status)
	return a.Store.FinishProposal(ctx, p.ID, answer.status, strings.TrimSpace(answer.body.String()))
}

// carryError is the failure of an approved proposal's call.
type carryError struct {
	problem error // what its caller may see
	cause   error
}

func (e carryError) Error() string { return e.cause.Error() }
func (e carryError) Unwrap() error { return e.problem }

// notCarriedOut returns the answer for a failed act; nil if the act has not failed, or another call has carried the
// proposal out meanwhile.
func (a *Desk) notCarriedOut(r *http.Request, p store.Proposal, failed error) error {
	carry, ok := errors.AsType[carryError](failed)
	if !ok || !store.IsProposalGone(carry.cause) {
		return failed
	}
	c := callOf(r)
	verdict, state, err := a.Store.ApproveProposal(r.Context(), store.Approval{ProposalID: p.ID, By: c.by, Names: c.names, Reason: p.Reason})
	switch {
	case err != nil || verdict == store.ProposalCarriedOut:
		return err
	case verdict == store.VerdictOpen: // the state changed and changed back
		return web.UnavailableBecause(failed, "the state changed while the proposal was carried out; nothing was changed; approve it again")
	}
	return verdictProblem(verdict, p, state)
}

// capturedResponse keeps an HTTP answer in memory instead of sending it.
type capturedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *capturedResponse) Header() http.Header { return k.header }

func (k *capturedResponse) WriteHeader(status int) {
	if k.status == 0 {
		k.status = status
	}
}

func (k *capturedResponse) Write(text []byte) (int, error) {
	k.WriteHeader(http.StatusOK)
	return k.body.Write(text)
}

// submitterSubject returns the subject of an act on one submitter.
func submitterSubject[T ~string](s T) map[string]any { return map[string]any{"submitter": string(s)} }

// idSubject returns a subject that consists of an id.
func idSubject(name string, n int64) map[string]any {
	return map[string]any{name: strconv.FormatInt(n, 10)}
}
