package functions

import (
	"context"
	"time"
)

// lastCheck is the result of the last check of conservation.
type lastCheck struct {
	At       time.Time     `json:"at"`
	Result   string        `json:"result"`   // ok or standing
	Standing int           `json:"standing"` // violations that no check has cleared yet
	Found    []findingView `json:"found"`    // the first violations
}

// lastCheck reads the result of the last check; nil if none has finished.
func (a *App) lastCheck(ctx context.Context) (*lastCheck, error) {
	last, err := a.transfers.checks.Last(ctx, maxFindings)
	if err != nil || last == nil {
		return nil, err
	}
	out := &lastCheck{At: last.At.UTC(), Result: "ok", Standing: last.Standing, Found: []findingView{}}
	if last.Standing > 0 {
		out.Result = "standing"
	}
	for _, f := range last.Found {
		out.Found = append(out.Found, findingView{f.ID, f.Kind, f.Side, f.ReqID, f.Account.UserID, f.Account.AssetID, f.Expected, f.Got, &f.At})
	}
	return out, nil
}
