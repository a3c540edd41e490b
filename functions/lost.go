package functions

import (
	"errors"
	"net/http"

	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/web"
)

// lostMost is how many nonces one answer shows.
const lostMost = 20

type lostResponse struct {
	ChainCount uint64      `json:"chainCount"` // the chain's latest count of the account
	NextNonce  int64       `json:"nextNonce"`  // ours
	Nonces     []lostNonce `json:"nonces"`
	More       bool        `json:"more"` // there are more than are shown
}

type lostNonce struct {
	Nonce   uint64        `json:"nonce"`
	Taker   *nonce.Taker  `json:"taker,omitempty"`   // the transaction that has the nonce on chain
	Unknown string        `json:"unknown,omitempty"` // why it cannot be shown
	Intents []store.Alike `json:"intents"`           // what here wants the same: to, value and data
}

// lost shows an operator each nonce that the chain has beyond the cursor, with
// the transaction that took it and every intent that wants the same: what to
// name as requests of a resync.
func (a *App) lost(w http.ResponseWriter, r *http.Request) error {
	if _, err := a.operator(r); err != nil {
		return err
	}
	s, err := a.submitter("submitter", r.PathValue("submitter"))
	if err != nil {
		return err
	}
	known, err := a.store.Submitter(r.Context(), s)
	if err != nil {
		return err
	}
	chain, err := a.chainOf(s)
	if err != nil {
		return err
	}
	v, err := chain.Look(r.Context(), nonce.Look{Submitter: s, Account: true})
	if err != nil {
		return web.UnavailableBecause(err, "the chain's count of the account could not be read")
	}
	out := lostResponse{ChainCount: v.Account.LatestCount, NextNonce: known.NextNonce, Nonces: []lostNonce{}}
	from := uint64(known.NextNonce)
	if known.InFlightNonce != nil {
		from = uint64(*known.InFlightNonce)
	}
	for n := from; n < v.Account.LatestCount && !out.More; n++ {
		if out.More = len(out.Nonces) == lostMost; out.More {
			break
		}
		one, err := a.lostNonce(r, chain, s, n)
		if err != nil {
			return err
		}
		out.Nonces = append(out.Nonces, one)
	}
	web.Reply(w, r, http.StatusOK, out)
	return nil
}

func (a *App) lostNonce(r *http.Request, chain nonce.ChainConnector, s nonce.Submitter, n uint64) (lostNonce, error) {
	one := lostNonce{Nonce: n, Intents: []store.Alike{}}
	taker, err := chain.Taken(r.Context(), s, n)
	if err != nil {
		one.Unknown = err.Error()
		return one, errors.Join(r.Context().Err())
	}
	one.Taker = &taker
	alike, err := a.store.IntentsAlike(r.Context(), s, taker)
	if err != nil {
		return one, err
	}
	for _, intent := range alike {
		if call, err := chain.Call(intent.Payload); err == nil && call.Does(taker) {
			one.Intents = append(one.Intents, intent)
		}
	}
	return one, nil
}
