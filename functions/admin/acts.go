package admin

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/functions/serve"
	usertransfers "github.com/fencepost/fencepost/functions/transfers"
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

// ActRule states who must decide about an operator's act.
type ActRule struct {
	Kind string // value of approvals.required for which the act needs a second operator; "": one operator is enough
	Why  string // the reason for that rule
}

// Acts lists each operator call that can change something. docs/approvals.md shows it.
var Acts = map[string]ActRule{
	"POST /admin/v1/submitters":                                           {"register", "callers can sign by the account"},
	"PATCH /admin/v1/submitters/{submitter}":                              {"register", "a wider window; a narrower one, or the name, needs one operator"},
	"POST /admin/v1/submitters/{submitter}/retire":                        {"register", "the account is never used again"},
	"PUT /admin/v1/submitters/{submitter}/policy":                         {"policy", "it bounds all signatures; one that is at least as tight needs one operator"},
	"POST /admin/v1/submitters/{submitter}/resume":                        {"policy", "it ends a suspension"},
	"PUT /admin/v1/submitters/{submitter}/callers":                        {"callers", "it names the callers; only leaving some out needs one operator"},
	"POST /admin/v1/submitters/{submitter}/signer":                        {"signer", "it names the service that signs"},
	"POST /admin/v1/submitters/{submitter}/release":                       {"release", "it ends PROTECT; one with dryRun changes nothing"},
	"POST /admin/v1/database/release-untouched":                           {"release", "it ends PROTECT of many submitters"},
	"POST /admin/v1/submitters/{submitter}/foreign/match":                 {"release", "it ends an intent that may not have been carried out"},
	"POST /admin/v1/submitters/{submitter}/foreign/write-off":             {"release", "held intents continue, and may be carried out twice"},
	"POST /admin/v1/submitters/{submitter}/proceed":                       {"release", "held intents continue, and may be carried out twice"},
	"POST /admin/v1/tx/{txId}/proceed":                                    {"release", "held intents continue, and may be carried out twice"},
	"POST /admin/v1/database/accept":                                      {"accept", "it trusts another database"},
	"POST /admin/v1/conservation/findings/{id}/adjust":                    {"adjustments", "it changes a balance or a journal"},
	"POST /admin/v1/halts/{id}/resume":                                    {"adjustments", "money moves that a check has stopped"},
	"POST /admin/v1/transfers/{req_id}/payout-statement":                  {"adjustments", "a statement pays a payout again, or refunds it"},
	"POST /admin/v1/transfers/{req_id}/resolve":                           {"adjustments", "a statement moves money; without outcome the ledger answers, and one operator is enough"},
	"POST /admin/v1/users/{user_id}/payout_addresses/unblock":             {"adjustments", "the user can add payout addresses again"},
	"POST /admin/v1/webhook-endpoints/{endpoint}/redeliver":               {"webhooks", "a receiver may act twice"},
	"POST /admin/v1/webhook-endpoints/{endpoint}/resume":                  {"webhooks", "an operator has stopped them"},
	"POST /admin/v1/webhook-endpoints/{endpoint}/pause":                   {"", "it only delays events"},
	"POST /admin/v1/webhook-endpoints/{endpoint}/test":                    {"", "no transaction made its event"},
	"PUT /admin/v1/assets/{asset}":                                        {"adjustments", "it names the payer, and limits; suspending needs one operator"},
	"POST /admin/v1/accounts/{user}/{asset}/deposits":                     {"adjustments", "it makes a user's money; the deposit service has a daily limit"},
	"POST /admin/v1/accounts/{user}/{asset}/withdrawals":                  {"adjustments", "it takes a user's money"},
	"POST /admin/v1/accounts/{user}/{asset}/status":                       {"adjustments", "money moves again; a status that allows no more needs one operator"},
	"POST /admin/v1/submitters/{submitter}/suspend":                       {"", "it only takes rights away"},
	"POST /admin/v1/submitters/{submitter}/queue/cancel":                  {"", "it only ends intents without a nonce"},
	"POST /admin/v1/tx/{txId}/cancel":                                     {"", "it does what the intent's caller can do alone"},
	"POST /admin/v1/tx/{txId}/decide":                                     {"", "it sends the same call within the policy, or a placeholder"},
	"POST /admin/v1/transfers/{req_id}/cancel":                            {"", "it only ends a transfer that has not begun"},
	"POST /admin/v1/transfers/{req_id}/acknowledge":                       {"", "it only silences an alert for a time"},
	"POST /admin/v1/transfers/{req_id}/payout-statement/withdraw":         {"", "it takes back a statement without effect"},
	"POST /admin/v1/users/{user_id}/payout_addresses/{address_id}/remove": {"", "it only takes an address away"},
	"POST /admin/v1/users/{user_id}/payout_addresses/block":               {"", "it only keeps addresses out"},
	"POST /admin/v1/conservation/check":                                   {"", "it reads, and can only halt"},
	"POST /admin/v1/proposals/{proposalId}/approve":                       {"", "it is the second operator's call"},
	"POST /admin/v1/proposals/{proposalId}/reject":                        {"", "it only ends a proposal"},
}

// act serves an operator call that can change something. It also registers the call in a.acts, through
// which [Desk.carryOut] carries out approved proposals.
func (a *Desk) act(mux *web.Mux, pattern string, h serve.Handler) {
	a.serveAct(mux, pattern, serve.Problem, h)
}

// transferAct is [Desk.act] for calls that answer with the errors of transfers.
func (a *Desk) transferAct(mux *web.Mux, pattern string, h serve.Handler) {
	a.serveAct(mux, pattern, func(err error) error { return usertransfers.Problem(err) }, h)
}

func (a *Desk) serveAct(mux *web.Mux, pattern string, problem func(error) error, h serve.Handler) {
	a.Handle(mux, "admin", pattern, func(w http.ResponseWriter, r *http.Request) error {
		c := &adminCall{kind: Acts[pattern].Kind}
		if slices.Contains(a.Approvals.Required, c.kind) {
			c.needsTwo = true
			r.Body = io.NopCloser(io.TeeReader(r.Body, &c.body))
		}
		if err := h(w, r.WithContext(context.WithValue(r.Context(), adminCallKey{}, c))); err != nil {
			web.Fail(w, r, problem(err))
		}
		return nil
	})
	if Acts[pattern].Kind == "" {
		return
	}
	a.acts.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			c := callOf(r)
			c.failed, c.problem = err, problem(err)
		}
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

	failed, problem error // the error, and the problem shown for it, of a call that carries out a proposal
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
