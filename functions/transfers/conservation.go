package transfers

import (
	"context"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/web"
)

// RouteConservation serves the function conservation.
func (a *Server) RouteConservation(mux *web.Mux) {
	a.HandleInternal(mux, "conservation", "conservation", WithProblems(a.runConservation))
}

// Report is the result of a check of conservation.
type Report struct {
	Result  string        `json:"result"` // ok; standing: only violations known before; violated
	Full    bool          `json:"full"`
	Entries int           `json:"entries"` // journal entries that the check read
	Final   int           `json:"final"`   // transfers that became final and that the check read
	Wrong   int           `json:"wrong"`   // number of violations
	Found   []FindingView `json:"found"`   // the first violations
	Fresh   int           `json:"fresh"`   // number of violations that no earlier check had found
	Halted  []HaltScope   `json:"halted"`  // the halts that the check opened
}

type FindingView struct {
	ID       int64             `json:"id,omitempty"` // the id that an adjustment names; none: this check has just found it
	Kind     conservation.Kind `json:"kind"`
	Side     conservation.Side `json:"side,omitempty"`
	ReqID    string            `json:"req_id,omitempty"`
	UserID   int64             `json:"user_id"`
	AssetID  int32             `json:"asset_id"`
	Expected string            `json:"expected"`
	Got      string            `json:"got"`
	At       *time.Time        `json:"at,omitempty"` // when a check first found it
}

type HaltScope struct {
	Scope   string `json:"scope"` // user_asset, asset or all
	UserID  int64  `json:"user_id,omitempty"`
	AssetID int32  `json:"asset_id,omitempty"`
}

// The most entries that one answer shows. The database has all of them.
const (
	MaxFindings = 100 // findings
	MaxHalts    = 100 // halts
)

// FindingOf returns a violation that has no id yet.
func FindingOf(f conservation.Finding) FindingView {
	return FindingView{0, f.Kind, f.Side, f.ReqID, f.Account.UserID, f.Account.AssetID, f.Expected, f.Got, nil}
}

func ReportOf(r conservation.Report) Report {
	out := Report{
		Result: r.Result(), Full: r.Full, Entries: r.Entries, Final: r.Final, Wrong: len(r.Found), Fresh: len(r.Fresh),
		Found: []FindingView{}, Halted: []HaltScope{},
	}
	for _, f := range r.Found[:min(len(r.Found), MaxFindings)] {
		out.Found = append(out.Found, FindingOf(f))
	}
	for _, h := range r.Halts[:min(len(r.Halts), MaxHalts)] {
		out.Halted = append(out.Halted, HaltScope{string(h.Scope), h.Account.UserID, h.Account.AssetID})
	}
	return out
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
