package quorum

import (
	"errors"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// An account's counts are those that a quorum of the chain's nodes shows, whichever node is
// queried first. Without a quorum there is no answer.
func TestAccountIsWhatAQuorumShows(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(1, 0)
	shows := func(latest, pending uint64, code bool) txmanager.ChainObservation {
		v := txtest.ViewOf(w, txtest.Block('a', 100))
		v.Account.LatestCount, v.Account.PendingCount, v.Account.HasCode = latest, pending, code
		return v
	}
	fresh, used, pends, code := shows(0, 0, false), shows(7, 7, false), shows(0, 1, false), shows(0, 0, true)
	lags := fresh
	lags.Lagging = true
	silent := txmanager.ChainObservation{NoAnswer: true}
	for name, c := range map[string]struct {
		quorum int
		views  []txmanager.ChainObservation
		want   *txmanager.Account // nil: the nodes do not agree
	}{
		"one node":                          {1, txtest.OfNodes(used), &used.Account},
		"all alike":                         {2, txtest.OfNodes(used, used, used), &used.Account},
		"the first lags unnoticed":          {2, txtest.OfNodes(fresh, used, used), &used.Account},
		"another lies":                      {2, txtest.OfNodes(used, fresh, used), &used.Account},
		"one of two":                        {1, txtest.OfNodes(fresh, used), nil},
		"one of two, the other lags":        {1, txtest.OfNodes(used, lags), &used.Account},
		"one of two, the other is silent":   {1, txtest.OfNodes(fresh, silent), nil},
		"one of three, the others silent":   {2, txtest.OfNodes(fresh, silent, silent), nil},
		"each says something else":          {2, txtest.OfNodes(fresh, used, pends), nil},
		"a pool that the first has not":     {2, txtest.OfNodes(fresh, pends, pends), &pends.Account},
		"code that the first does not show": {2, txtest.OfNodes(fresh, code, code), &code.Account},
		"two against two":                   {2, txtest.OfNodes(fresh, fresh, used, used), nil},
	} {
		got, err := AgreedAccount(t.Context(), &txtest.Panel{Views: c.views, Needed: c.quorum}, txtest.Alice)
		switch {
		case c.want == nil && !errors.Is(err, txmanager.ErrNoQuorum):
			t.Errorf("%s: got %+v, %v; want that the nodes do not agree", name, got, err)
		case c.want != nil && (err != nil || !sameUse(got, *c.want)):
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, *c.want)
		}
	}
}
