package admin

import (
	"net/http"

	"github.com/fencepost/fencepost/shared/buildinfo"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/store"
)

// overviewResponse is the state of the whole deployment, and of the process that answers.
type overviewResponse struct {
	store.Overview
	Instance string              `json:"instance"` // the process that answers
	Build    buildinfo.Info      `json:"build"`    // its build
	Settings []config.Difference `json:"settings"` // its settings that differ from their defaults
}

// overview shows the state of the deployment.
func (a *Server) overview(r *http.Request) (overviewResponse, error) {
	o, err := a.Store.Overview(r.Context(), a.Limits)
	return overviewResponse{o, a.Node, buildinfo.Read(), append([]config.Difference{}, a.Settings...)}, err
}
