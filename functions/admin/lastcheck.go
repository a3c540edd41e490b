package admin

import (
	"context"
	"time"

	usertransfers "github.com/fencepost/fencepost/functions/transfers"
)

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
