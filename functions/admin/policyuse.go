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
	size, after, err := serve.PageOf(q, serve.ScopePlace)
	if err != nil {
		return out, err
	}
	use, err := a.Store.PolicyUse(r.Context(), s, after, size+1)
	if err != nil {
		return out, err
	}
	page, token := serve.CutPage(use.Scopes, size, serve.ScopePlace, func(one store.PolicyScope) string { return one.Scope })
	use.Scopes = append([]store.PolicyScope{}, page...)
	return policyUseResponse{use, token}, nil
}
