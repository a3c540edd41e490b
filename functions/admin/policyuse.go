package admin

import (
	"net/http"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

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
