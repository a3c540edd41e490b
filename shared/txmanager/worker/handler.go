package worker

import (
	"strings"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// maxHandlerCalls is how often a handler is called for one nonce without a stored answer. Without
// this limit, a handler that kills its process would be called forever.
const maxHandlerCalls = 3

// missingHandlerReason is why t's handler cannot be called by this process, or "". Another version
// of the program may have the handler.
func (w *Worker) missingHandlerReason(t txmanager.Tx) string {
	if _, known := w.Handlers[t.Handler]; known || t.Handler == "" {
		return ""
	}
	return "no handler " + t.Handler + " in this process"
}

// shorten cuts a text from outside to 300 bytes.
func shorten(text string) string {
	const limit = 300
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
