// Package transactions serves the callers of the transaction manager. They post intents, read what came
// of them and cancel them. It signs nothing and queries no node.
package transactions

import (
	"context"

	"github.com/fencepost/fencepost/functions/counted"
	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// Server serves the functions create, query and cancel.
type Server struct {
	*serve.Base
	Store counted.Store
	Tasks interface {
		EnqueueAdvance(ctx context.Context, s txmanager.Submitter, token int64) error
	}
	RulesOf  func(txmanager.Submitter) (rules.Rules, error) // fails for a chain that is not served
	Handlers []string                                       // the handlers that requests may name

	MaxQueued  int    // per submitter
	EventsKept bool   // the events can be read again
	EventsMode string // for the text of the answer if not
}
