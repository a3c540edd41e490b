package payout_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// watchedChain is the payer's chain. It calls a function when the final count is queried.
type watchedChain struct {
	txmanager.ChainConnector
	at func()
}

func (c watchedChain) Query(ctx context.Context, q txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	if q.FinalCount {
		c.at()
	}
	return c.ChainConnector.Query(ctx, q)
}

// A release that was evaluated before the database was accepted ends no PROTECT incident after it.
// It has not checked which transactions the restored copy has lost, and has filled no lost nonce.
func TestReleaseFromBeforeTheAcceptanceEndsNoProtect(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		copied bool // the release begins in a restored copy that no operator has accepted
		mode   txmanager.ReleaseMode
		err    error // nil: any error is accepted
	}{
		"begun in the copy":             {true, txmanager.Resume, txmanager.ErrDatabaseNotAccepted},
		"begun before, and still going": {false, txmanager.Resync, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newEnv(t)
			h.mine(80)
			h.run(`insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`, h.payer)
			accept := func() { check.Err(t, "accept", nil)(h.db.Store.AcceptDatabase(t.Context(), "ann", "reconciled")) }
			if x.copied {
				h.restore()
				h.worker.Reached = func(point string) {
					if point == "release.taken" {
						accept()
					}
				}
			} else {
				h.worker.ChainOf = func(txmanager.Submitter) (txmanager.ChainConnector, error) {
					return watchedChain{h.connector, func() { h.restore(); accept() }}, nil
				}
			}
			out, err := h.worker.ReleaseSubmitter(t.Context(), h.payer, txmanager.ReleaseRequest{Incident: 1, Mode: x.mode, By: "bob", Reason: "a false alarm"})
			if err == nil || !errors.Is(err, x.err) && x.err != nil {
				t.Errorf("release: got %+v, %v; want it refused", out, err)
			}
			check.Equal(t, "open incidents", value[int](h, `select count(*) from protect_incident where closed_at is null`), 1)
		})
	}
}
