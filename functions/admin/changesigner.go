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
	reasonRequest
	Signer string `json:"signer"`
}

// changeSigner replaces the signer of an account, by an operator's decision after the key has moved.
// The account stays the same, so both signers produce versions for the same nonces. The call needs no
// lease: an invocation that holds it keeps the signer that it loaded at acquisition.
func (a *Server) changeSigner(w http.ResponseWriter, r *http.Request, c submitterCall[signerRequest]) error {
	to := store.SignerChange{Submitter: c.on, Signer: c.body.Signer, By: c.by, Reason: c.reason}
	if _, err := a.Signers.Checker(to.Signer); err != nil {
		return web.FieldProblem("signer", "is %v", err)
	}
	if _, err := a.Store.Submitter(r.Context(), c.on); err != nil {
		return err
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
	return a.replySubmitter(w, r, c.on)
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
