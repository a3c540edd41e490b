package admin

import (
	"net/http"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

type policyUseResponse struct {
	store.PolicyUse
	NextPageToken string `json:"nextPageToken,omitempty"` // absent on the last page
}

// policyUse shows what counts now against the limits of a submitter's policy, by caller and token.
func (a *Server) policyUse(w http.ResponseWriter, r *http.Request, s txmanager.Submitter) error {
	q, err := serve.Parameters(r, "pageSize", "pageToken")
	if err != nil {
		return err
	}
	size, after, err := serve.PageOf(q, serve.ScopePlace)
	if err != nil {
		return err
	}
	use, err := a.Store.PolicyUse(r.Context(), s, after, size+1)
	if err != nil {
		return err
	}
	page, token := serve.CutPage(use.Scopes, size, serve.ScopePlace, func(one store.PolicyScope) string { return one.Scope })
	use.Scopes = append([]store.PolicyScope{}, page...)
	return web.Reply(w, r, http.StatusOK, policyUseResponse{use, token})
}
