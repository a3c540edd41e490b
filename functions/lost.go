package functions

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// lostMost is how many nonces one page shows.
const lostMost = 20

type lostResponse struct {
	ChainCount uint64      `json:"chainCount"` // the chain's latest count of the account
	FinalCount *uint64     `json:"finalCount"` // the count at the finalized block, which a resync accepts; null: the node has none
	NextNonce  int64       `json:"nextNonce"`  // ours
	Nonces     []lostNonce `json:"nonces"`
	More       bool        `json:"more"`               // there are more than are shown
	NextFrom   *uint64     `json:"nextFrom,omitempty"` // where the next page begins

	// How many queued intents may be any of the transactions: what they call is not
	// known before their handlers run.
	UnknownCalls int `json:"unknownCalls"`
}

type lostNonce struct {
	Nonce     uint64                 `json:"nonce"`
	Taker     *txmanager.ConsumingTx `json:"taker,omitempty"`     // the transaction that has the nonce on chain
	Succeeded *bool                  `json:"succeeded,omitempty"` // once it was read at finality
	Unknown   string                 `json:"unknown,omitempty"`   // why it cannot be shown
	Intents   []store.MatchingIntent `json:"intents"`             // what here wants the same: to, value and data
	Payouts   []string               `json:"payouts"`             // req_ids of open payouts that want the same
}

// losses is what one page is made of.
type losses struct {
	s       txmanager.Submitter
	chain   txmanager.ChainConnector
	stored  map[uint64]txmanager.ForeignTransaction
	own     map[uint64][]txmanager.Hash // versions that are stored for nonces of the page
	open    []txmanager.OpenRequest
	reading txmanager.ForeignScan
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
	from, err := lostFrom(r)
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
	v, err := chain.Query(r.Context(), txmanager.ChainQuery{Submitter: s, Account: true, FinalCount: true})
	if err != nil {
		return web.UnavailableBecause(err, "the chain's count of the account could not be read")
	}
	first := uint64(known.NextNonce)
	if known.InFlightNonce != nil {
		first = uint64(*known.InFlightNonce)
	}
	from = max(first, from)
	out := lostResponse{ChainCount: v.Account.LatestCount, FinalCount: v.FinalCount, NextNonce: known.NextNonce, Nonces: []lostNonce{}}
	page := losses{s: s, chain: chain, stored: make(map[uint64]txmanager.ForeignTransaction)}
	if page.open, err = a.store.OpenRequests(r.Context(), s); err != nil {
		return err
	}
	for _, o := range page.open {
		if o.Unknown {
			out.UnknownCalls++
		}
	}
	below := min(v.Account.LatestCount, from+lostMost)
	read, err := a.store.ForeignTransactions(r.Context(), s, from, below)
	if err != nil {
		return err
	}
	for _, f := range read {
		page.stored[f.Nonce] = f
	}
	if page.reading, err = a.readingOf(r.Context(), known); err != nil {
		return err
	}
	if page.own, err = a.store.OwnVersions(r.Context(), s, from, below); err != nil {
		return err
	}
	for n := from; n < below; n++ {
		one, err := a.lostNonce(r, page, n)
		if err != nil {
			return err
		}
		if own, err := page.ours(r.Context(), one); err != nil {
			return err
		} else if own {
			continue // mined, and not settled yet: it is not lost
		}
		out.Nonces = append(out.Nonces, one)
	}
	if out.More = below < v.Account.LatestCount && from < below; out.More {
		out.NextFrom = &below
	}
	web.Reply(w, r, http.StatusOK, out)
	return nil
}

// readingOf is how far blocks were read in the open episode.
func (a *App) readingOf(ctx context.Context, known store.SubmitterView) (txmanager.ForeignScan, error) {
	var open struct{ Episode int }
	if known.Protect != nil {
		if err := json.Unmarshal(known.Protect, &open); err != nil {
			return txmanager.ForeignScan{}, err
		}
	}
	return a.store.ForeignScan(ctx, known.Submitter, open.Episode, uint64(known.NextNonce))
}

// ours reports that a version of our own has consumed the nonce. Where no node tells which
// transaction has, and a version is stored, the node is asked for its receipt: the steps in
// the background look for foreign transactions alone.
func (page losses) ours(ctx context.Context, one lostNonce) (bool, error) {
	own := page.own[one.Nonce]
	if one.Taker != nil || len(own) == 0 {
		return one.Taker != nil && slices.Contains(own, one.Taker.Hash), nil
	}
	v, err := page.chain.Query(ctx, txmanager.ChainQuery{Submitter: page.s, Receipts: own})
	if err != nil {
		return false, web.UnavailableBecause(err, "the receipts of the account's transactions could not be read")
	}
	return slices.ContainsFunc(own, func(h txmanager.Hash) bool { return v.Receipts[h].Answer == txmanager.AnswerFound }), nil
}

// lostFrom is the nonce at which the page begins.
func lostFrom(r *http.Request) (uint64, error) {
	q, err := parameters(r, "from")
	if err != nil || q["from"] == "" {
		return 0, err
	}
	from, ok := digits(q["from"])
	if !ok {
		return 0, web.FieldProblem("from", "is %.40q: want a nonce, such as nextFrom of the page before", q["from"])
	}
	return uint64(from), nil
}

func (a *App) lostNonce(r *http.Request, page losses, n uint64) (lostNonce, error) {
	one := lostNonce{Nonce: n, Intents: []store.MatchingIntent{}, Payouts: []string{}}
	f, read := page.stored[n]
	if read {
		one.Succeeded = &f.Succeeded
	}
	if !read || f.Tx.CallDigest() != f.CallDigest { // or its data are longer than what is kept
		taker, err := page.chain.FindConsumingTx(r.Context(), page.s, n)
		if err != nil && !read {
			if one.Unknown = err.Error(); errors.Is(err, txmanager.ErrNoCounts) {
				one.Unknown = page.reading.Progress() + "; " + one.Unknown
			}
			return one, r.Context().Err()
		}
		if err == nil {
			f.Tx, f.CallDigest = taker, taker.CallDigest()
		}
	}
	one.Taker = &f.Tx
	for _, o := range page.open {
		call, err := page.chain.ParsePayload(o.Payload)
		if same := err == nil && !o.Unknown && f.Does(call); same && o.TxID == "" {
			one.Payouts = append(one.Payouts, o.RequestID)
		}
	}
	alike, err := a.store.MatchingIntents(r.Context(), page.s, f.Tx)
	if err != nil {
		return one, err
	}
	for _, intent := range alike {
		if call, err := page.chain.ParsePayload(intent.Payload); err == nil && f.Does(call) {
			one.Intents = append(one.Intents, intent)
		}
	}
	return one, nil
}
