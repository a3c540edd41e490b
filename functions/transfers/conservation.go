package transfers

import (
	"context"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/web"
)

// RouteConservation serves the function conservation.
func (a *Server) RouteConservation(mux *web.Mux) {
	a.HandleInternal(mux, "conservation", withProblems(a.runConservation))
}

// The most entries that one answer shows. The database has all of them.
const (
	MaxFindings = 100 // findings
	MaxHalts    = 100 // halts
)

// FindingOf returns a violation that has no id yet.
func FindingOf(f conservation.Finding) client.Finding {
	return client.Finding{
		Kind: string(f.Kind), Side: string(f.Side), ReqID: f.ReqID, UserID: f.Account.UserID, AssetID: f.Account.AssetID, Expected: f.Expected, Got: f.Got,
	}
}

// ScopeOf returns what a halt covers; the user 0 and the asset 0 are all.
func ScopeOf(scope string, userID int64, assetID int32) client.HaltScope {
	s := client.HaltScope{Scope: scope}
	if userID != 0 {
		s.UserID = &userID
	}
	if assetID != 0 {
		s.AssetID = &assetID
	}
	return s
}

// ReportOf returns the result of a check. It has the first violations and halts only.
func ReportOf(r conservation.Report) client.CheckReport {
	return client.CheckReport{
		Result: r.Result(), Full: r.Full, Entries: int64(r.Entries), Final: int64(r.Final), Wrong: int64(len(r.Found)), Fresh: int64(len(r.Fresh)),
		Found: serve.ViewsOf(r.Found[:min(len(r.Found), MaxFindings)], FindingOf),
		Halted: serve.ViewsOf(r.Halts[:min(len(r.Halts), MaxHalts)], func(h conservation.Halt) client.HaltScope {
			return ScopeOf(string(h.Scope), h.Account.UserID, h.Account.AssetID)
		}),
	}
}

// runConservation checks all balances, and the transfers and journal entries since the last check. A
// full check reads everything from the beginning. When it answers 200, each violation is stored,
// logged and halted. An error answer is no verdict.
func (a *Server) runConservation(w http.ResponseWriter, r *http.Request) error {
	body, err := web.Decode[CheckRequest](w, r, a.MaxBodyBytes)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.Deadline-time.Second)
	defer cancel()
	report, err := a.Monitor.Check(ctx, body.Full)
	if err != nil {
		return err
	}
	return web.Reply(w, r, http.StatusOK, ReportOf(report))
}

type CheckRequest struct {
	Full bool `json:"full"` // read everything from the beginning
}
