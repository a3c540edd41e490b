package chaintest

import (
	"encoding/json"
	"fmt"
	"sync"
)

// Recorder keeps a node's answers and gives them again later: what a node that
// lags behind says.
type Recorder struct {
	mu      sync.Mutex
	answers map[string][]json.RawMessage
}

// Record is a Fault that passes every answer on and keeps it.
func (r *Recorder) Record() Fault {
	return Fault{Answer: func(call Call, own json.RawMessage) map[string]any {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.answers == nil {
			r.answers = map[string][]json.RawMessage{}
		}
		r.answers[call.question()] = append(r.answers[call.question()], own)
		return nil
	}}
}

// Replay is a Fault that answers what was recorded to each call that lags says
// true of, the last answer of several; nil is all calls.
func (r *Recorder) Replay(lags func(Call) bool) Fault {
	return Fault{Answer: func(call Call, _ json.RawMessage) map[string]any {
		r.mu.Lock()
		defer r.mu.Unlock()
		kept := r.answers[call.question()]
		if len(kept) == 0 || (lags != nil && !lags(call)) {
			return nil
		}
		var response map[string]any
		_ = json.Unmarshal(kept[len(kept)-1], &response) // a node's answer, decoded once already
		return response
	}}
}

func (c Call) question() string { return fmt.Sprint(c.Method, c.Params) }
