package admin

import (
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/web"
)

// overviewResponse is the state of the whole deployment, and of the process that answers.
type overviewResponse struct {
	store.Overview
	Instance string              `json:"instance"` // the process that answers
	Build    buildInfo           `json:"build"`    // its build
	Settings []config.Difference `json:"settings"` // its settings that differ from their defaults
}

// overview shows the state of the deployment.
func (a *Server) overview(w http.ResponseWriter, r *http.Request) error {
	o, err := a.Store.Overview(r.Context(), a.Limits)
	if err != nil {
		return err
	}
	return web.Reply(w, r, http.StatusOK, overviewResponse{o, a.Node, readBuild(), append([]config.Difference{}, a.Settings...)})
}

// buildInfo is from what the program was built.
type buildInfo struct {
	Version  string `json:"version"`  // of the module; "(devel)": built from a working tree
	Revision string `json:"revision"` // of the repository; "": not known
	Modified bool   `json:"modified"` // the working tree differed from the revision
	Go       string `json:"go"`
}

// readBuild reads the build of this process.
var readBuild = sync.OnceValue(func() (b buildInfo) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version, b.Go = info.Main.Version, info.GoVersion
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
})
