package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

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

	controlPatience = 10 * time.Second // for a call of the control address
	maxControl      = 1 << 20          // bytes of an answer
)

// Drills are the exercises that an emulator offers at its control address. One runs at a time. Their pages make no call of
// admin: a drill makes its own.
type Drills struct {
	control string
	http    *http.Client
}

// RemoteDrills returns the drills of the emulator whose control address is given, such as http://127.0.0.1:7070, or an
// address that leads there. It sends no request yet.
func RemoteDrills(control string) *Drills {
	return &Drills{strings.TrimSuffix(control, "/"), &http.Client{Timeout: controlPatience}}
}

// show lists the drills and shows what the last run said.
func (d *Drills) show(ctx context.Context, _ page.Call) (page.View, error) {
	var state DrillState
	text, err := d.call(ctx, http.MethodGet, "/drills")
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	v := page.View{Title: "Drill", Body: "operation/drill", Data: state}
	if state.Run != nil && state.Run.Ended == nil {
		v.Poll = drillPoll
	}
	return v, drillError(err)
}

// start starts a drill, which goes on after the call. With the field "solve" it makes the operator's calls too.
func (d *Drills) start(ctx context.Context, call page.Call) (page.View, error) {
	_, err := d.call(ctx, http.MethodPost, fmt.Sprintf("/drills/%s?solve=%t", url.PathEscape(call.PathValue("name")), call.PostFormValue("solve") == "true"))
	return page.View{SeeOther: drillPath}, drillError(err)
}

// stop ends the running drill and its fault. Without one it does nothing.
func (d *Drills) stop(ctx context.Context, _ page.Call) (page.View, error) {
	_, err := d.call(ctx, http.MethodDelete, "/drills")
	return page.View{SeeOther: drillPath}, drillError(err)
}

// call returns the answer. The error has the text of a refusal.
func (d *Drills) call(ctx context.Context, method, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, d.control+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := d.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("the emulator's control address does not answer; is the emulator still running? %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxControl))
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = errors.New(strings.TrimSpace(string(text)))
	}
	return text, err
}

// drillError shows the text of an error: the local environment has no secrets.
func drillError(err error) error {
	if err == nil {
		return nil
	}
	return &client.Problem{Status: http.StatusConflict, Code: "DRILL", Title: "The drill did not start", Detail: err.Error()}
}
