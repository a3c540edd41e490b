package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	usertransfers "github.com/fencepost/fencepost/functions/transfers"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/web"
)

// checkConservation is the scheduled check at an operator's request.
func (a *TransferServer) checkConservation(w http.ResponseWriter, r *http.Request, c call[struct{}, usertransfers.CheckRequest]) error {
	a.Log.InfoContext(r.Context(), "check of conservation demanded", "operator", c.by, "full", c.body.Full)
	report, err := a.Transfers.Monitor.Check(r.Context(), c.body.Full)
	if err != nil {
		return err
	}
	web.Reply(w, r, http.StatusOK, usertransfers.ReportOf(report))
	return nil
}

type haltView struct {
	ID int64 `json:"id"`
	usertransfers.HaltScope
	Since    time.Time       `json:"since"`
	Evidence json.RawMessage `json:"evidence"`
}

type conservationResponse struct {
	Last  *lastCheck `json:"last_check"` // null: no check has finished yet
	Open  int        `json:"open_halts"` // number of open halts
	Halts []haltView `json:"halts"`      // the newest open halts, newest first
}

// showConservation shows an operator the result of the last check and the open halts.
func (a *TransferServer) showConservation(w http.ResponseWriter, r *http.Request) error {
	last, err := a.lastCheck(r.Context())
	if err != nil {
		return err
	}
	halts, open, err := a.Transfers.Store.OpenHalts(r.Context(), usertransfers.MaxHalts)
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

func scopeOf(h transfers.Halt) usertransfers.HaltScope {
	return usertransfers.HaltScope{Scope: string(h.Scope), UserID: h.UserID, AssetID: h.AssetID}
}

type resumeRequest struct {
	reasonRequest
	Earlier bool `json:"earlier"` // also end the halts that were opened before this one
}

// resume ends one halt by an operator's decision and stores the reason. A halt that was opened after
// the operator read the list stays open.
func (a *TransferServer) resume(w http.ResponseWriter, r *http.Request, c call[int64, resumeRequest]) error {
	if mustPropose(r) {
		what := proposed{"halt-resume", idSubject("halt", c.on), c.reason, fmt.Sprintf("ends halt %d", c.on)}
		if c.body.Earlier {
			what.effect += ", and those that were opened before it"
		}
		return proposeIf(a.Desk, w, r, what, func(now struct{ ResumedAt *time.Time }, known bool) error {
			if !known || now.ResumedAt != nil {
				return transfers.ErrNotHalted
			}
			return nil
		})
	}
	if err := a.Transfers.Store.Resume(r.Context(), c.on, c.by, c.reason, c.body.Earlier); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "transfers resumed", "halt", c.on, "earlier", c.body.Earlier, "operator", c.by, "reason", c.reason)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// lastCheck is the result of the last check of conservation.
type lastCheck struct {
	At       time.Time                   `json:"at"`
	Result   string                      `json:"result"`   // ok or standing
	Standing int                         `json:"standing"` // violations that no check has cleared yet
	Found    []usertransfers.FindingView `json:"found"`    // the first violations
}

// lastCheck reads the result of the last check; nil if none has finished.
func (a *TransferServer) lastCheck(ctx context.Context) (*lastCheck, error) {
	last, err := a.Checks.Last(ctx, usertransfers.MaxFindings)
	if err != nil || last == nil {
		return nil, err
	}
	out := &lastCheck{At: last.At.UTC(), Result: "ok", Standing: last.Standing, Found: []usertransfers.FindingView{}}
	if last.Standing > 0 {
		out.Result = "standing"
	}
	for _, f := range last.Found {
		v := usertransfers.FindingOf(f.Finding)
		v.ID, v.At = f.ID, &f.At
		out.Found = append(out.Found, v)
	}
	return out, nil
}
