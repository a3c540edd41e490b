package operation

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// Drills are the exercises that the local environment offers. One runs at a time.
type Drills interface {
	// State returns all drills and the last run.
	State(ctx context.Context) (DrillState, error)
	// Start starts a drill, which goes on after the call. With solve it makes the operator's calls too. The error
	// says why it did not start.
	Start(ctx context.Context, name string, solve bool) error
	// Stop ends the running drill and its fault. Without one it does nothing.
	Stop(ctx context.Context) error
}

// DrillState is what the local environment offers, and the last run.
type DrillState struct {
	Drills []Drill   `json:"drills"`
	Run    *DrillRun `json:"run"` // nil: none was started
}

// Drill is an exercise.
type Drill struct {
	Name    string `json:"name"`
	Meaning string `json:"meaning"` // half a sentence
	Runbook string `json:"runbook"` // a page of the repository
	Needs   string `json:"needs"`   // what the local environment lacks for it; "": nothing
}

// DrillRun is one run of a drill.
type DrillRun struct {
	Name    string     `json:"name"`
	Solve   bool       `json:"solve"`
	Started time.Time  `json:"started"`
	Ended   *time.Time `json:"ended"` // nil: it runs
	Failed  bool       `json:"failed"`
	Output  string     `json:"output"` // what it said so far
}

const (
	drillPath = "/console/drill"
	drillPoll = 2 * time.Second
)

// drillPages are the pages of the drills.
type drillPages struct{ drills Drills }

// show lists the drills and shows what the last run said. It makes no call of admin.
func (d drillPages) show(ctx context.Context, call page.Call) (page.View, error) {
	state, err := d.drills.State(ctx)
	v := page.View{Title: "Drill", Body: "operation/drill", Data: state}
	if state.Run != nil && state.Run.Ended == nil {
		v.Poll = drillPoll
	}
	return v, drillError(err)
}

// start starts a drill. It makes no call of admin: the drill makes its own.
func (d drillPages) start(ctx context.Context, call page.Call) (page.View, error) {
	return page.View{SeeOther: drillPath}, drillError(d.drills.Start(ctx, call.PathValue("name"), call.PostFormValue("solve") == "true"))
}

// stop ends the running drill. It makes no call of admin.
func (d drillPages) stop(ctx context.Context, _ page.Call) (page.View, error) {
	return page.View{SeeOther: drillPath}, drillError(d.drills.Stop(ctx))
}

// drillError shows the text of an error: the local environment has no secrets.
func drillError(err error) error {
	var p *client.Problem
	if err == nil || errors.As(err, &p) {
		return err
	}
	return &client.Problem{Status: http.StatusConflict, Code: "DRILL", Title: "The drill did not start", Detail: err.Error()}
}
