package functions

import (
	"context"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// Resolutions returns the resolutions of every chain's worker.
func (a *App) Resolutions() (all []txmanager.StuckResolution) {
	for _, c := range a.chains {
		all = append(all, c.worker.Resolution)
	}
	return all
}

// SetMark sets the object of the mark outside the database.
func (a *App) SetMark(o mark.Object) {
	a.Mark = serve.NewMark(o, a.store)
}

// Outcome returns cancel's answer about a transaction.
func Outcome(d store.DecisionResult) string { return outcome(d) }

// CountedSigner returns the signer of a registration's name, with its calls counted.
func CountedSigner(d signer.Directory, name string) txmanager.Signer {
	return (&App{signers: d}).signerNamed(name)
}

// OperatorCalls is the log message before each operator act.
const OperatorCalls = operatorCalls

// Patterns returns all patterns that the functions serve.
func (a *App) Patterns() []string {
	all := web.NewMux()
	a.routeOperational(all)
	for _, route := range a.routes() {
		route(all)
	}
	return all.Patterns()
}

// Serve is one invocation that handles everything the submitter has due.
func (a *App) Serve(ctx context.Context, s txmanager.Submitter, kind txmanager.Kind) error {
	worker, err := a.workerOf(s)
	if err != nil {
		return err
	}
	return worker.ServeSubmitter(ctx, s, kind)
}

// PayoutFinality returns how a payment of the payer becomes final.
func (a *App) PayoutFinality(s txmanager.Submitter) (txmanager.Finality, uint64, error) {
	return a.transfers.payouts.FinalityOf(s)
}

// ActRule states who must decide about an operator's act.
type ActRule struct{ Kind, Why string }

// AdminActs returns all operator calls that can change something, by pattern.
func AdminActs() map[string]ActRule {
	all := make(map[string]ActRule, len(adminActs))
	for pattern, rule := range adminActs {
		all[pattern] = ActRule{rule.kind, rule.why}
	}
	return all
}
