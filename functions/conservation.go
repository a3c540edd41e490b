package functions

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/web"
)

func (a *App) routeConservation(mux *web.Mux) {
	a.HandleInternal(mux, "conservation", "conservation", withTransferProblems(a.runConservation))
}

// reportResponse is the result of a check of conservation.
type reportResponse struct {
	Result  string        `json:"result"` // ok; standing: only violations known before; violated
	Full    bool          `json:"full"`
	Entries int           `json:"entries"` // journal entries that the check read
	Final   int           `json:"final"`   // transfers that became final and that the check read
	Wrong   int           `json:"wrong"`   // number of violations
	Found   []findingView `json:"found"`   // the first violations
	Fresh   int           `json:"fresh"`   // number of violations that no earlier check had found
	Halted  []haltScope   `json:"halted"`  // the halts that the check opened
}

type findingView struct {
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

type haltScope struct {
	Scope   string `json:"scope"` // user_asset, asset or all
	UserID  int64  `json:"user_id,omitempty"`
	AssetID int32  `json:"asset_id,omitempty"`
}

// The most entries that one answer shows. The database has all of them.
const (
	maxFindings = 100 // findings
	maxHalts    = 100 // halts
)

func reportOf(r conservation.Report) reportResponse {
	out := reportResponse{
		Result: r.Result(), Full: r.Full, Entries: r.Entries, Final: r.Final, Wrong: len(r.Found), Fresh: len(r.Fresh),
		Found: []findingView{}, Halted: []haltScope{},
	}
	for _, f := range r.Found[:min(len(r.Found), maxFindings)] {
		out.Found = append(out.Found, findingView{0, f.Kind, f.Side, f.ReqID, f.Account.UserID, f.Account.AssetID, f.Expected, f.Got, nil})
	}
	for _, h := range r.Halts[:min(len(r.Halts), maxHalts)] {
		out.Halted = append(out.Halted, haltScope{string(h.Scope), h.Account.UserID, h.Account.AssetID})
	}
	return out
}

// runConservation checks all balances, and the transfers and journal entries since the last check. A
// full check reads everything from the beginning. When it answers 200, each violation is stored,
// logged and halted. An error answer is no verdict.
func (a *App) runConservation(w http.ResponseWriter, r *http.Request) error {
	body, err := web.Decode[checkRequest](w, r, a.MaxBodyBytes)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.Deadline-time.Second)
	defer cancel()
	report, err := a.transfers.monitor.Check(ctx, body.Full)
	if err != nil {
		return err
	}
	web.Reply(w, r, http.StatusOK, reportOf(report))
	return nil
}

type checkRequest struct {
	Full bool `json:"full"` // read everything from the beginning
}

// checkConservation is [App.runConservation] at an operator's request.
func (a *App) checkConservation(w http.ResponseWriter, r *http.Request) error {
	operator, err := a.operator(r)
	if err != nil {
		return err
	}
	body, err := web.Decode[checkRequest](w, r, a.MaxBodyBytes)
	if err != nil {
		return err
	}
	a.Log.InfoContext(r.Context(), "check of conservation demanded", "operator", operator, "full", body.Full)
	report, err := a.transfers.monitor.Check(r.Context(), body.Full)
	if err != nil {
		return err
	}
	web.Reply(w, r, http.StatusOK, reportOf(report))
	return nil
}

type haltView struct {
	ID int64 `json:"id"`
	haltScope
	Since    time.Time       `json:"since"`
	Evidence json.RawMessage `json:"evidence"`
}

type conservationResponse struct {
	Last  *lastCheck `json:"last_check"` // null: no check has finished yet
	Open  int        `json:"open_halts"` // number of open halts
	Halts []haltView `json:"halts"`      // the newest open halts, newest first
}

// showConservation shows an operator the result of the last check and the open halts.
func (a *App) showConservation(w http.ResponseWriter, r *http.Request) error {
	if _, err := a.operator(r); err != nil {
		return err
	}
	last, err := a.lastCheck(r.Context())
	if err != nil {
		return err
	}
	halts, open, err := a.transfers.store.OpenHalts(r.Context(), maxHalts)
	if err != nil {
		return err
	}
	out := conservationResponse{Last: last, Open: open, Halts: make([]haltView, len(halts))}
	for i, h := range halts {
		out.Halts[i] = haltView{h.ID, scopeOf(h), h.Since.UTC(), h.Evidence}
	}
	web.Reply(w, r, http.StatusOK, out)
	return nil
}

func scopeOf(h transfers.Halt) haltScope { return haltScope{string(h.Scope), h.UserID, h.AssetID} }

type resumeRequest struct {
	Reason  string `json:"reason"`
	Earlier bool   `json:"earlier"` // also end the halts that were opened before this one
}

// resume ends one halt by an operator's decision and stores the reason. A halt that was opened after
// the operator read the list stays open.
func (a *App) resume(w http.ResponseWriter, r *http.Request) error {
	operator, err := a.operator(r)
	if err != nil {
		return err
	}
	id, ok := serve.Digits(r.PathValue("id"))
	if !ok {
		return web.FieldProblem("id", "is no number of a halt: want one that GET /admin/v1/conservation shows")
	}
	body, err := web.Decode[resumeRequest](w, r, a.MaxBodyBytes)
	if err != nil {
		return err
	}
	reason, err := reasonOf(body.Reason)
	if err != nil {
		return err
	}
	if mustPropose(r) {
		what := proposed{"halt-resume", idSubject("halt", id), reason, fmt.Sprintf("ends halt %d", id)}
		if body.Earlier {
			what.effect += ", and those that were opened before it"
		}
		var now struct{ ResumedAt *time.Time }
		switch known, err := a.actState(r.Context(), what, &now); {
		case err != nil:
			return err
		case !known || now.ResumedAt != nil:
			return transfers.ErrNotHalted
		}
		return a.propose(w, r, what)
	}
	if err := a.transfers.store.Resume(r.Context(), id, operator, reason, body.Earlier); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "transfers resumed", "halt", id, "earlier", body.Earlier, "operator", operator, "reason", reason)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
