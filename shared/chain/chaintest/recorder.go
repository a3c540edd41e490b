package chaintest

import (
	"encoding/json"
	"fmt"
	"sync"
)

// Recorder records a node's answers and repeats them later, as a lagging node would answer.
type Recorder struct {
	mu      sync.Mutex
	answers map[string][]json.RawMessage
}

// Record returns a Fault that passes every answer on and records it.
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

// Replay returns a Fault that repeats the last recorded answer for each call for which lags is true; nil
// means all calls.
func (r *Recorder) Replay(lags func(Call) bool) Fault {
	return Fault{Answer: func(call Call, _ json.RawMessage) map[string]any {
		r.mu.Lock()
		defer r.mu.Unlock()
		kept := r.answers[call.question()]
		if len(kept) == 0 || (lags != nil && !lags(call)) {
			return nil
		}
		var response map[string]any
		_ = json.Unmarshal(kept[len(kept)-1], &response) // a node's answer that was decoded before
		return response
	}}
}

func (c Call) question() string { return fmt.Sprint(c.Method, c.Params) }
