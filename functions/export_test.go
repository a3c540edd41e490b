package functions

import (
	"context"
	"net/http"
	"slices"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// Create stores an intent.
func (a *App) Create(ctx context.Context, in store.Intent) error {
	_, err := a.store.Create(ctx, in, 100)
	return err
}

// SetMark sets the object of the mark outside the database.
func (a *App) SetMark(o mark.Object) {
	a.base.Mark = serve.NewMark(o, a.store.Store)
}

// Patterns returns all patterns that the functions serve.
func (a *App) Patterns() []string {
	all := web.NewMux()
	a.routeOperational(all)
	for _, route := range a.routes() {
		route(all)
	}
	return all.Patterns()
}

// AdminTransport returns the connections from the console to admin.
func (a *App) AdminTransport() http.RoundTripper { return a.adminTransport() }

// Serve is one invocation that handles everything the submitter has due.
func (a *App) Serve(ctx context.Context, s txmanager.Submitter, kind txmanager.Kind) error {
	worker, err := a.workerFor(s)
	if err != nil {
		return err
	}
	return worker.ServeSubmitter(ctx, s, kind)
}

// PayoutFinality returns how a payment of the payer becomes final.
func (a *App) PayoutFinality(s txmanager.Submitter) (txmanager.Finality, uint64, error) {
	c, err := a.transfers.payouts.ChainOf(s)
	return c.Finality, c.Confirmations, err
}

// Namespaces returns the namespaces of the families, sorted.
func Namespaces() (all []string) {
	for _, f := range chainFamilies {
		all = append(all, f.Namespace())
	}
	slices.Sort(all)
	return all
}
