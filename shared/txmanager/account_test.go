package txmanager

import (
	"errors"
	"testing"
)

// An account's counts are those that a quorum of the chain's nodes shows, whichever node is
// queried first. Without a quorum there is no answer.
func TestAccountIsWhatAQuorumShows(t *testing.T) {
	t.Parallel()
	w := stateOf(1, 0)
	shows := func(latest, pending uint64, code bool) ChainObservation {
		v := viewOf(w, block('a', 100))
		v.Account.LatestCount, v.Account.PendingCount, v.Account.HasCode = latest, pending, code
		return v
	}
	fresh, used, pends, code := shows(0, 0, false), shows(7, 7, false), shows(0, 1, false), shows(0, 0, true)
	lags := fresh
	lags.Lagging = true
	silent := ChainObservation{NoAnswer: true}
	for name, c := range map[string]struct {
		quorum int
		views  []ChainObservation
		want   *Account // nil: the nodes do not agree
	}{
		"one node":                          {1, ofNodes(used), &used.Account},
		"all alike":                         {2, ofNodes(used, used, used), &used.Account},
		"the first lags unnoticed":          {2, ofNodes(fresh, used, used), &used.Account},
		"another lies":                      {2, ofNodes(used, fresh, used), &used.Account},
		"one of two":                        {1, ofNodes(fresh, used), nil},
		"one of two, the other lags":        {1, ofNodes(used, lags), &used.Account},
		"one of two, the other is silent":   {1, ofNodes(fresh, silent), nil},
		"one of three, the others silent":   {2, ofNodes(fresh, silent, silent), nil},
		"each says something else":          {2, ofNodes(fresh, used, pends), nil},
		"a pool that the first has not":     {2, ofNodes(fresh, pends, pends), &pends.Account},
		"code that the first does not show": {2, ofNodes(fresh, code, code), &code.Account},
		"two against two":                   {2, ofNodes(fresh, fresh, used, used), nil},
	} {
		got, err := AgreedAccount(t.Context(), &panel{views: c.views, quorum: c.quorum}, alice)
		switch {
		case c.want == nil && !errors.Is(err, ErrNoQuorum):
			t.Errorf("%s: got %+v, %v; want that the nodes do not agree", name, got, err)
		case c.want != nil && (err != nil || !sameUse(got, *c.want)):
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, *c.want)
		}
	}
}
