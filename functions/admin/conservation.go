package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	usertransfers "github.com/fencepost/fencepost/functions/transfers"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/web"
)

// checkConservation is the scheduled check at an operator's request.
func (a *TransferServer) checkConservation(w http.ResponseWriter, r *http.Request) error {
	operator, err := a.operator(r)
	if err != nil {
		return err
	}
	body, err := web.Decode[usertransfers.CheckRequest](w, r, a.MaxBodyBytes)
	if err != nil {
		return err
	}
	a.Log.InfoContext(r.Context(), "check of conservation demanded", "operator", operator, "full", body.Full)
	report, err := a.Transfers.Monitor.Check(r.Context(), body.Full)
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
	if _, err := a.operator(r); err != nil {
		return err
	}
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
	Reason  string `json:"reason"`
	Earlier bool   `json:"earlier"` // also end the halts that were opened before this one
}

// resume ends one halt by an operator's decision and stores the reason. A halt that was opened after
// the operator read the list stays open.
func (a *TransferServer) resume(w http.ResponseWriter, r *http.Request) error {
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
	if err := a.Transfers.Store.Resume(r.Context(), id, operator, reason, body.Earlier); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "transfers resumed", "halt", id, "earlier", body.Earlier, "operator", operator, "reason", reason)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
