package functions

import (
	"context"
	"time"
)

// lastCheck is what checks of conservation have come to.
type lastCheck struct {
	At       time.Time     `json:"at"`
	Result   string        `json:"result"`   // ok or standing
	Standing int           `json:"standing"` // how much is wrong and not known to be right again
	Found    []findingView `json:"found"`    // the first of it
}

// lastCheck reads what the last check came to; nil where none has come to its end.
func (a *App) lastCheck(ctx context.Context) (*lastCheck, error) {
	last, err := a.transfers.checks.Last(ctx, foundMost)
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
