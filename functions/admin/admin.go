package admin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/quorum"
	"github.com/fencepost/fencepost/shared/web"
)

type registerRequest struct {
	Submitter   string         `json:"submitter"`
	Signer      serve.Optional `json:"signer"`
	StartNonce  *uint64        `json:"startNonce"`
	Reason      string         `json:"reason"`
	MaxInFlight *int           `json:"maxInFlight"`
	Callers     []string       `json:"callers"`

	Policy json.RawMessage `json:"policy"` // [policyTerms], or "unlimited"
}

// register registers a signing account as a submitter. The chain must confirm that the account's next
// nonce is the start nonce given.
func (a *Server) register(w http.ResponseWriter, r *http.Request, c call[struct{}, registerRequest]) error {
	reg, err := a.registration(c.body)
	if err != nil {
		return err
	}
	reg.CreatedBy = c.by
	if err := a.startsWhereTheChainIs(r, reg); err != nil {
		return err
	}
	if err := a.signerHasIt(r, reg.Submitter, reg.Signer); err != nil {
		return err
	}
	if mustPropose(r) {
		switch _, err := a.Store.Submitter(r.Context(), reg.Submitter); {
		case errors.Is(err, store.ErrUnknownSubmitter):
			return a.propose(w, r, proposed{"register", submitterSubject(reg.Submitter), reg.StartReason,
				fmt.Sprintf("registers %s at nonce %d, signed by %s, for the callers %s", reg.Submitter, reg.StartNonce, reg.Signer, strings.Join(reg.Callers, ", "))})
		case err != nil:
			return err
		} // a repeated registration changes nothing; one with other terms is refused
	}
	isNew, err := a.Store.Register(r.Context(), reg)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if isNew {
		status = http.StatusCreated
		a.Log.InfoContext(r.Context(), "submitter registered", telemetry.SubmitterKey, reg.Submitter,
			"operator", c.by, "startNonce", reg.StartNonce, "reason", reg.StartReason, "maxInFlight", reg.MaxInFlight, "unlimited", reg.Policy.Unlimited())
	}
	view, err := a.Store.Submitter(r.Context(), reg.Submitter)
	if err != nil {
		return err
	}
	return web.Reply(w, r, status, view)
}

// registration checks the terms and fills in the deployment's defaults.
func (a *Server) registration(body registerRequest) (store.Registration, error) {
	reg := store.Registration{
		StartNonce: a.Nonce.StartFrom, StartReason: strings.TrimSpace(body.Reason),
		MaxInFlight: a.Nonce.MaxInFlight,
	}
	named, err := body.Signer.Of("signer")
	if err != nil {
		return reg, err
	}
	reg.Signer = cmp.Or(named, signer.LocalName)
	if reg.Submitter, err = a.Submitter("submitter", body.Submitter); err != nil {
		return reg, err
	}
	if _, err := a.ChainOf(reg.Submitter); err != nil {
		return reg, a.notServed("submitter", reg.Submitter)
	}
	if _, err := a.Checker(reg.Signer); err != nil {
		return reg, web.FieldProblem("signer", "is %v", err)
	}
	if body.StartNonce != nil {
		reg.StartNonce = *body.StartNonce
	}
	if reg.StartNonce != 0 && reg.StartReason == "" {
		return reg, web.FieldProblem("reason", "is required where startNonce is not 0: why was the account used before?")
	}
	if body.MaxInFlight != nil {
		reg.MaxInFlight = *body.MaxInFlight
	}
	if reg.Callers, err = a.parseCallers(body.Callers); err != nil {
		return reg, err
	}
	if err := a.checkWindow(reg.MaxInFlight); err != nil {
		return reg, err
	}
	family, err := a.Families.Of(reg.Submitter)
	if err != nil {
		return reg, err
	}
	p, err := registeredPolicy(family, body.Policy)
	reg.Policy = &p
	return reg, err
}

// checkWindow checks a window that an operator gives.
func (a *Server) checkWindow(n int) error {
	switch {
	case n < 1 || n > widestWindow:
		return web.FieldProblem("maxInFlight", "is %d: want 1 to %d", n, widestWindow)
	case n > 1 && a.Nonce.Strict:
		return &web.Problem{Code: web.Code{Name: "STRICT_WINDOW", Status: http.StatusConflict}, Field: "maxInFlight",
			Detail: fmt.Sprintf("maxInFlight is %d: above 1 needs nonce.strict.enabled=false; while that is true, give 1", n)}
	}
	return nil
}

// startsWhereTheChainIs refuses a start nonce that the chain does not confirm, and names both numbers.
// A skipped or repeated nonce could not be repaired later. With several nodes a quorum decides what
// the chain's count is.
func (a *Server) startsWhereTheChainIs(r *http.Request, reg store.Registration) error {
	chain, err := a.ChainOf(reg.Submitter)
	if err != nil {
		return err
	}
	known, err := a.Store.Submitter(r.Context(), reg.Submitter)
	if err == nil && known.Retired() {
		return store.ErrRetired
	}
	if err == nil && known.StartNonce == int64(reg.StartNonce) { // a repeated registration: the count has moved on since
		return nil
	}
	acc, err := quorum.AgreedAccount(r.Context(), chain, reg.Submitter)
	switch {
	case errors.Is(err, txmanager.ErrNoQuorum):
		return web.UnavailableBecause(err, "the chain's nodes do not agree on the account; nothing was registered: see docs/nodes.md, and ask again")
	case err != nil:
		return web.UnavailableBecause(err, "the chain's count of the account could not be read; nothing was registered")
	}
	switch {
	case acc.LatestCount != reg.StartNonce:
		return web.FieldProblem("startNonce", "is %d, but the chain's count of the account is %d: give that count as startNonce with a reason, or use a fresh account",
			reg.StartNonce, acc.LatestCount)
	case acc.PendingCount != reg.StartNonce:
		return web.FieldProblem("startNonce", "is %d, but the account has %d pending transactions, so another program uses it",
			reg.StartNonce, acc.PendingCount-acc.LatestCount)
	case acc.HasCode:
		return web.FieldProblem("submitter", "has code or a delegation on chain, so its nonce can rise without a transaction of its key")
	}
	return nil
}

// listSubmitters lists the submitters.
func (a *Server) listSubmitters(r *http.Request, q map[string]string) (serve.List, error) {
	query, place, err := submitterQuery(q)
	if err != nil {
		return serve.List{}, err
	}
	return serve.PageList("submitters", q, place, func(after string, limit int) ([]store.SubmitterView, error) {
		query.Size = limit
		query.After.Submitter, query.After.Name, _ = strings.Cut(after, " ")
		return a.Store.Submitters(r.Context(), query)
	}, func(s store.SubmitterView) string {
		if query.ByName {
			return string(s.Submitter) + " " + s.Name
		}
		return string(s.Submitter)
	})
}

// submitterQuery reads the query of a list of submitters, and the kind of its places.
func submitterQuery(q map[string]string) (query store.SubmitterQuery, place serve.Place[string], err error) {
	query, place = store.SubmitterQuery{State: q["state"], ByName: q["sort"] == "name"}, serve.SubmitterPlace
	switch {
	case query.State != "" && !slices.Contains(store.SubmitterStates(), query.State):
		return query, place, web.FieldProblem("state", "is none of a submitter; send one of %v", store.SubmitterStates())
	case q["sort"] != "" && q["sort"] != "submitter" && !query.ByName:
		return query, place, web.FieldProblem("sort", "is %.40q: want submitter or name", q["sort"])
	case query.State != "" && query.ByName:
		return query, place, web.FieldProblem("sort", "by name cannot be combined with state: send one of them")
	case query.ByName:
		place = serve.NamePlace
	}
	return query, place, nil
}
