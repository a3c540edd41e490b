package chaintest

import (
	"encoding/json"
	"fmt"
	"sync"
)

// record makes the queries. It returns the Fault of a lagging node, which repeats the last answer of that time to each
// call for which lags is true; nil means all calls.
func (b *bundle) record(queries func()) (replay func(lags func(Call) bool) Fault) {
	var mu sync.Mutex
	answers := map[string]json.RawMessage{}
	question := func(c Call) string { return fmt.Sprint(c.Method, c.Params) }
	b.proxy.Set(Fault{Answer: func(call Call, own json.RawMessage) map[string]any {
		mu.Lock()
		defer mu.Unlock()
		answers[question(call)] = own
		return nil
	}})
	queries()
	b.proxy.Set(Fault{})
	return func(lags func(Call) bool) Fault {
		return Fault{Answer: func(call Call, _ json.RawMessage) (response map[string]any) {
			mu.Lock()
			defer mu.Unlock()
			if own, ok := answers[question(call)]; ok && (lags == nil || lags(call)) {
				_ = json.Unmarshal(own, &response) // a node's answer that was decoded before
			}
			return response
		}}
	}
}
