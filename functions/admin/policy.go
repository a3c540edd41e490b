package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// policyTerms is a policy as operators write it. An omitted member sets no limit, and neither does null: a list or
// map without a pointer would refuse it.
type policyTerms struct {
	store.Policy
	Targets   *[]string                      `json:"targets"`
	PerCaller *map[string]store.CallerLimits `json:"perCaller"`
	Tokens    *map[string]store.TokenLimits  `json:"tokens"`
}

// policy checks the terms. The prefix in is the path of the member that contains them, with a dot at
// its end.
func (t policyTerms) policy(family chain.Family, in string) (store.Policy, error) {
	p := t.Policy
	if err := amounts(in, map[string]*string{
		"maxValue": t.MaxValue, "maxValuePerDay": t.MaxValuePerDay,
		"maxFeePerTx": t.MaxFeePerTx, "maxPriorityFeePerGas": t.MaxPriorityFeePerGas, "maxFeesPerDay": t.MaxFeesPerDay,
	}); err != nil {
		return p, err
	}
	if t.MaxPriorityFeePerGas != nil && *t.MaxPriorityFeePerGas == "0" {
		return p, web.FieldProblem(in+"maxPriorityFeePerGas", "is 0: want at least 1, since nodes drop a transaction without a tip; to allow none, set maxFeesPerDay to 0")
	}
	if n := t.MaxGas; n != nil && (*n < minPolicyGas || *n > maxPolicyGas) {
		return p, web.FieldProblem(in+"maxGas", "is %d: want %d, which every transaction has, to %d; to allow none, set maxFeesPerDay to 0", *n, minPolicyGas, maxPolicyGas)
	}
	const limit = 1_000_000
	if n := t.MaxPerMinute; n != nil && (*n < 1 || *n > limit) {
		return p, web.FieldProblem(in+"maxPerMinute", "is %d: want 1 to %d; to allow none, suspend the submitter", *n, limit)
	}
	var err error
	if t.Targets != nil {
		if p.Targets, err = targets(family, in+"targets", *t.Targets); err != nil {
			return p, err
		}
	}
	if p.PerCaller, err = callerLimits(in+"perCaller", t.PerCaller); err != nil {
		return p, err
	}
	p.Tokens, err = tokenLimits(family, in+"tokens", t.Tokens)
	return p, err
}

// amounts checks members that are amounts.
func amounts(in string, all map[string]*string) error {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		amount := all[name]
		if amount == nil {
			continue
		}
		n, ok := new(big.Int).SetString(*amount, 10)
		if !ok || n.Sign() < 0 || n.BitLen() > 256 || n.String() != *amount {
			return web.FieldProblem(in+name, "is not an amount; send wei, or a token's smallest unit, as a decimal string, from 0 to 2^256-1, without sign, leading zeros or spaces")
		}
	}
	return nil
}

// maxPolicyLimits is the most callers, and the most tokens, that a policy can name.
const maxPolicyLimits = 1000

// callerLimits checks the limits of callers.
func callerLimits(field string, given *map[string]store.CallerLimits) (map[string]store.CallerLimits, error) {
	if given == nil {
		return nil, nil
	}
	if n := len(*given); n == 0 || n > maxPolicyLimits {
		return nil, web.FieldProblem(field, "has %d: want 1 to %d callers, or leave it out", n, maxPolicyLimits)
	}
	for _, name := range slices.Sorted(maps.Keys(*given)) {
		limits, at := (*given)[name], field+"."+name
		if !serve.CallerName.MatchString(name) && name != store.AnyCaller && name != store.HooksCaller && name != store.PayoutCaller {
			return nil, web.FieldProblem(field, "has %.100q: want a caller, as email:<verified e-mail>, sub:<subject of the token>, %q or %q, or \"*\" for each that is not named; a handler is no caller",
				name, store.HooksCaller, store.PayoutCaller)
		}
		if err := checkCallerLimits(at, limits); err != nil {
			return nil, err
		}
	}
	return *given, nil
}

// checkCallerLimits checks the limits of the caller at this path.
func checkCallerLimits(at string, limits store.CallerLimits) error {
	const perMinuteLimit, queuedLimit = 1_000_000, 1_000_000
	if limits == (store.CallerLimits{}) {
		return web.FieldProblem(at, "has no limit: want one of maxValue, maxValuePerDay, maxPerMinute and maxQueued, or leave the caller out")
	}
	if err := amounts(at+".", map[string]*string{"maxValue": limits.MaxValue, "maxValuePerDay": limits.MaxValuePerDay}); err != nil {
		return err
	}
	if n := limits.MaxPerMinute; n != nil && (*n < 1 || *n > perMinuteLimit) {
		return web.FieldProblem(at+".maxPerMinute", "is %d: want 1 to %d; to allow none, remove the caller from the submitter's callers", *n, perMinuteLimit)
	}
	if n := limits.MaxQueued; n != nil && (*n < 1 || *n > queuedLimit) {
		return web.FieldProblem(at+".maxQueued", "is %d: want 1 to %d; to allow none, remove the caller from the submitter's callers", *n, queuedLimit)
	}
	return nil
}

// tokenLimits checks the limits of tokens and converts their addresses to the form used for
// comparison.
func tokenLimits(family chain.Family, field string, given *map[string]store.TokenLimits) (map[string]store.TokenLimits, error) {
	if given == nil {
		return nil, nil
	}
	if n := len(*given); n == 0 || n > maxPolicyLimits {
		return nil, web.FieldProblem(field, "has %d: want 1 to %d tokens, or leave it out", n, maxPolicyLimits)
	}
	all := make(map[string]store.TokenLimits, len(*given))
	for _, text := range slices.Sorted(maps.Keys(*given)) {
		limits, at := (*given)[text], field+"."+text
		a, err := family.ParseAddress(text)
		if err != nil {
			return nil, web.FieldProblem(field, "has %.100q (%v): want the address of each token's contract", text, err)
		}
		if _, twice := all[a.String()]; twice {
			return nil, web.FieldProblem(field, "has %s twice, in different letters", a)
		}
		if limits == (store.TokenLimits{}) {
			return nil, web.FieldProblem(at, "has no limit: want one of maxAmount and maxAmountPerDay, or leave the token out")
		}
		if err := amounts(at+".", map[string]*string{"maxAmount": limits.MaxAmount, "maxAmountPerDay": limits.MaxAmountPerDay}); err != nil {
			return nil, err
		}
		all[a.String()] = limits
	}
	return all, nil
}

// unlimited is the registration's value for a policy without limits.
const unlimited = "unlimited"

// registeredPolicy reads the policy of a registration. A submitter without limits needs the explicit
// word, so that a forgotten policy is refused.
func registeredPolicy(family chain.Family, raw json.RawMessage) (store.Policy, error) {
	const wanted = `give the limits as an object, such as {"maxValue": "1000000000000000000", "maxFeesPerDay": "100000000000000000"}, or "unlimited" to have none`
	var word string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return store.Policy{}, web.FieldProblem("policy", "is required: "+wanted)
	case json.Unmarshal(raw, &word) == nil && word == unlimited:
		return store.Policy{}, nil
	case raw[0] != '{':
		return store.Policy{}, web.FieldProblem("policy", "is neither an object nor the word: "+wanted)
	}
	type named struct { // makes an error name the member with its path
		Policy policyTerms `json:"policy"`
	}
	body, err := web.DecodeText[named](slices.Concat([]byte(`{"policy":`), raw, []byte(`}`)))
	if err != nil {
		return store.Policy{}, err
	}
	p, err := body.Policy.policy(family, "policy.")
	if err == nil && p.Unlimited() {
		err = web.FieldProblem("policy", "has no limit: "+wanted)
	}
	return p, err
}

// The bounds of a policy's gas limit: that of a plain transfer, and the maximum of one transaction
// (EIP-7825).
const (
	minPolicyGas = 21_000
	maxPolicyGas = 1 << 24
)

// targets returns the recipients and functions in the form used for comparison.
func targets(family chain.Family, field string, given []string) ([]string, error) {
	const limit = 1000
	if n := len(given); n == 0 || n > limit {
		return nil, web.FieldProblem(field, "has %d: want 1 to %d, or leave it out to allow all; to allow none, suspend the submitter", n, limit)
	}
	all := make([]string, len(given))
	for i, text := range given {
		if all[i] = text; text == store.TargetDeploy {
			continue
		}
		address, function, named := strings.Cut(text, ":")
		a, err := family.ParseAddress(address)
		if err != nil {
			return nil, web.FieldProblem(field, "has %q (%v): want addresses, functions such as %q, or %q", text, err, exampleFunction, store.TargetDeploy)
		}
		if all[i] = a.String(); !named {
			continue
		}
		selector, err := family.ParseFunction(function)
		if err != nil {
			return nil, web.FieldProblem(field, "has %q, whose function cannot be read: want a signature or a selector behind the address, such as %q or %q",
				text, exampleFunction, exampleSelector)
		}
		all[i] += ":" + selector
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for _, target := range all {
		if address, _, named := strings.Cut(target, ":"); named && slices.Contains(all, address) {
			return nil, web.FieldProblem(field, "has %s with a function and without: the address alone allows each function; send one of the two", address)
		}
	}
	return all, nil
}

// Two forms of the same function of a contract.
const (
	exampleFunction = "0x00000000000000000000000000000000000cafe0:transfer(address,uint256)"
	exampleSelector = "0x00000000000000000000000000000000000cafe0:0xa9059cbb"
)

type policyRequest struct {
	policyTerms
	reasonRequest
}

// putPolicy replaces a submitter's policy.
func (a *Server) putPolicy(w http.ResponseWriter, r *http.Request, c submitterCall[policyRequest]) error {
	family, err := a.Families.Of(c.on)
	if err != nil {
		return err
	}
	p, err := c.body.policy(family, "")
	if err != nil {
		return err
	}
	token, err := a.Store.PutPolicy(r.Context(), store.PolicyChange{Submitter: c.on, Policy: p, By: c.by, Reason: c.reason, OnlyTighter: mustPropose(r)})
	if errors.Is(err, store.ErrNotTighter) {
		return a.propose(w, r, proposed{"policy", submitterSubject(c.on), c.reason, fmt.Sprintf("sets the policy of %s in place of the present one", c.on)})
	}
	if err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "policy set", telemetry.SubmitterKey, c.on, "operator", c.by, "reason", c.reason)
	a.EnqueueAdvance(r.Context(), c.on, token)
	return serve.Reply(w, r)(a.submitterNow(r.Context(), c.on))
}

// suspendSubmitter stops a submitter from accepting intents and allocating nonces.
func (a *Server) suspendSubmitter(w http.ResponseWriter, r *http.Request, c submitterCall[reasonRequest]) error {
	return a.setStatus(w, r, c, true)
}

// resumeSubmitter ends the suspension.
func (a *Server) resumeSubmitter(w http.ResponseWriter, r *http.Request, c submitterCall[reasonRequest]) error {
	if mustPropose(r) {
		what := proposed{"resume", submitterSubject(c.on), c.reason, fmt.Sprintf("resumes %s: it takes intents again, and binds nonces", c.on)}
		return proposeIf(a.Desk, w, r, what, store.ErrUnknownSubmitter, func(now struct{ Status string }) error {
			switch {
			case now.Status == "RETIRED":
				return store.ErrRetired
			case now.Status != "SUSPENDED":
				return store.ErrStatusUnchanged
			}
			return nil
		})
	}
	return a.setStatus(w, r, c, false)
}

func (a *Server) setStatus(w http.ResponseWriter, r *http.Request, c submitterCall[reasonRequest], suspend bool) error {
	token, err := a.Store.SetStatus(r.Context(), store.Suspension{Submitter: c.on, Suspend: suspend, By: c.by, Reason: c.reason})
	if err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "submitter suspended or resumed", telemetry.SubmitterKey, c.on, "suspended", suspend, "operator", c.by, "reason", c.reason)
	a.EnqueueAdvance(r.Context(), c.on, token)
	return serve.Reply(w, r)(a.submitterNow(r.Context(), c.on))
}

// retireSubmitter ends the use of a submitter for ever.
func (a *Server) retireSubmitter(w http.ResponseWriter, r *http.Request, c submitterCall[reasonRequest]) error {
	if mustPropose(r) {
		what := proposed{"retire", submitterSubject(c.on), c.reason, fmt.Sprintf("retires %s: it is never used again", c.on)}
		return proposeIf(a.Desk, w, r, what, store.ErrUnknownSubmitter, func(now struct{ Status, OpenWork string }) error {
			switch {
			case now.Status == "RETIRED":
				return store.ErrStatusUnchanged
			case now.OpenWork != "":
				return store.OpenWorkError{Work: now.OpenWork}
			}
			return nil
		})
	}
	if err := a.Store.Retire(r.Context(), store.Retirement{Submitter: c.on, By: c.by, Reason: c.reason}); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "submitter retired", telemetry.SubmitterKey, c.on, "operator", c.by, "reason", c.reason)
	return serve.Reply(w, r)(a.submitterNow(r.Context(), c.on))
}

type policyUseResponse struct {
	store.PolicyUse
	NextPageToken string `json:"nextPageToken,omitempty"` // absent on the last page
}

// policyUse shows what counts now against the limits of a submitter's policy, by caller and token.
func (a *Server) policyUse(r *http.Request, s txmanager.Submitter, q map[string]string) (out policyUseResponse, err error) {
	out.Scopes, out.NextPageToken, err = serve.Page(q, serve.ScopePlace, func(after string, limit int) (_ []store.PolicyScope, err error) {
		out.PolicyUse, err = a.Store.PolicyUse(r.Context(), s, after, limit)
		return out.Scopes, err
	}, func(one store.PolicyScope) string { return one.Scope })
	return out, err
}
