package admin

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

type signerRequest struct {
	Signer string `json:"signer"`
	Reason string `json:"reason"`
}

// changeSigner replaces the signer of an account, by an operator's decision after the key has moved.
// The account stays the same, so both signers produce versions for the same nonces. The call needs no
// lease: an invocation that holds it keeps the signer that it loaded at acquisition.
func (a *Server) changeSigner(w http.ResponseWriter, r *http.Request) error {
	operator, err := a.operator(r)
	if err != nil {
		return err
	}
	s, err := a.Submitter("submitter", r.PathValue("submitter"))
	if err != nil {
		return err
	}
	body, err := web.Decode[signerRequest](w, r, a.MaxBodyBytes)
	if err != nil {
		return err
	}
	reason, err := reasonOf(body.Reason)
	if err != nil {
		return err
	}
	to := store.SignerChange{Submitter: s, Signer: body.Signer, By: operator, Reason: reason}
	if _, err := a.Signers.Checker(to.Signer); err != nil {
		return web.FieldProblem("signer", "is %v", err)
	}
	if _, err := a.Store.Submitter(r.Context(), s); err != nil {
		return err
	}
	if err := a.signerHasIt(r, s, to.Signer); err != nil {
		return err
	}
	if mustPropose(r) {
		return a.propose(w, r, proposed{"signer", submitterSubject(s), reason, fmt.Sprintf("has %s sign for %s", to.Signer, s)})
	}
	from, changed, err := a.Store.ChangeSigner(r.Context(), to)
	if err != nil {
		return err
	}
	if changed {
		a.Log.WarnContext(r.Context(), "signer changed", telemetry.SubmitterKey, s, telemetry.NodeIDKey, a.Node,
			"from", from, "to", to.Signer, "operator", operator, "reason", to.Reason)
	}
	return a.replySubmitter(w, r, s)
}

// signerHasIt refuses a signer without a key of the account. The chain would reject its signatures,
// and the nonce would stay blocked for ever.
func (a *Server) signerHasIt(r *http.Request, s txmanager.Submitter, name string) error {
	service, err := a.Signers.Checker(name)
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
