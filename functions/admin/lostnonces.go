package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// lostPage is the number of nonces on one page.
const lostPage = 20

type lostResponse struct {
	ChainCount uint64      `json:"chainCount"` // the chain's latest count of the account
	FinalCount *uint64     `json:"finalCount"` // the count at the finalized block, which a resync accepts; null: the node did not return it
	NextNonce  int64       `json:"nextNonce"`  // the next nonce that the manager would allocate
	Nonces     []lostNonce `json:"nonces"`
	More       bool        `json:"more"`               // further pages exist
	NextFrom   *uint64     `json:"nextFrom,omitempty"` // where the next page begins

	// The number of queued intents that could match any of the transactions, since their handlers have
	// not run yet.
	UnknownCalls int `json:"unknownCalls"`
}

type lostNonce struct {
	Nonce       uint64                 `json:"nonce"`
	ConsumingTx *txmanager.ConsumingTx `json:"taker,omitempty"`     // the transaction that consumed the nonce on the chain
	Succeeded   *bool                  `json:"succeeded,omitempty"` // read at finality; null: not yet
	Unknown     string                 `json:"unknown,omitempty"`   // why the transaction cannot be shown
	Intents     []store.MatchingIntent `json:"intents"`             // intents with the same to, value and data
	Payouts     []string               `json:"payouts"`             // req_ids of open payouts with the same effect
}

// lostNoncePage is the data from which one page is built.
type lostNoncePage struct {
	s       txmanager.Submitter
	chain   txmanager.ChainConnector
	stored  map[uint64]txmanager.ForeignTransaction
	own     map[uint64][]txmanager.Hash // stored versions for nonces of the page
	open    []txmanager.OpenRequest
	reading txmanager.ForeignScan
}

// lost shows an operator each nonce that the chain has consumed beyond the cursor. With it come the
// transaction that consumed the nonce and every matching intent. The operator names these as requests
// of a resync.
func (a *Server) lost(w http.ResponseWriter, r *http.Request) error {
	if _, err := a.operator(r); err != nil {
		return err
	}
	s, err := a.Submitter("submitter", r.PathValue("submitter"))
	if err != nil {
		return err
	}
	from, err := lostFrom(r)
	if err != nil {
		return err
	}
	known, err := a.Store.Submitter(r.Context(), s)
	if err != nil {
		return err
	}
	chain, err := a.Chains.Connector(s)
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
	page := lostNoncePage{s: s, chain: chain, stored: make(map[uint64]txmanager.ForeignTransaction)}
	if page.open, err = a.Store.OpenRequests(r.Context(), s); err != nil {
		return err
	}
	for _, o := range page.open {
		if o.Unknown {
			out.UnknownCalls++
		}
	}
	below := min(v.Account.LatestCount, from+lostPage)
	read, err := a.Store.ForeignTransactions(r.Context(), s, from, below)
	if err != nil {
		return err
	}
	for _, f := range read {
		page.stored[f.Nonce] = f
	}
	if page.reading, err = a.scanOf(r.Context(), known); err != nil {
		return err
	}
	if page.own, err = a.Store.OwnVersions(r.Context(), s, from, below); err != nil {
		return err
	}
	for n := from; n < below; n++ {
		one, err := a.lostNonce(r, page, n)
		if err != nil {
			return err
		}
		if own, err := page.consumedByOwn(r.Context(), one); err != nil {
			return err
		} else if own {
			continue // mined but not final yet: it is not lost
		}
		out.Nonces = append(out.Nonces, one)
	}
	if out.More = below < v.Account.LatestCount && from < below; out.More {
		out.NextFrom = &below
	}
	web.Reply(w, r, http.StatusOK, out)
	return nil
}

// scanOf returns how far the blocks of the open PROTECT incident have been scanned.
func (a *Server) scanOf(ctx context.Context, known store.SubmitterView) (txmanager.ForeignScan, error) {
	var open struct{ Episode int }
	if known.Protect != nil {
		if err := json.Unmarshal(known.Protect, &open); err != nil {
			return txmanager.ForeignScan{}, err
		}
	}
	return a.Store.ForeignScan(ctx, known.Submitter, open.Episode, uint64(known.NextNonce))
}

// consumedByOwn reports whether a stored version of ours has consumed the nonce. If no node names the
// transaction and a version is stored, it asks the node for the version's receipt. The background
// steps search only for foreign transactions.
func (page lostNoncePage) consumedByOwn(ctx context.Context, one lostNonce) (bool, error) {
	own := page.own[one.Nonce]
	if one.ConsumingTx != nil || len(own) == 0 {
		return one.ConsumingTx != nil && slices.Contains(own, one.ConsumingTx.Hash), nil
	}
	v, err := page.chain.Query(ctx, txmanager.ChainQuery{Submitter: page.s, Receipts: own})
	if err != nil {
		return false, web.UnavailableBecause(err, "the receipts of the account's transactions could not be read")
	}
	return slices.ContainsFunc(own, func(h txmanager.Hash) bool { return v.Receipts[h].Answer == txmanager.AnswerFound }), nil
}

// lostFrom returns the nonce at which the page begins.
func lostFrom(r *http.Request) (uint64, error) {
	q, err := serve.Parameters(r, "from")
	if err != nil || q["from"] == "" {
		return 0, err
	}
	from, ok := serve.Digits(q["from"])
	if !ok {
		return 0, web.FieldProblem("from", "is %.40q: want a nonce, such as nextFrom of the page before", q["from"])
	}
	return uint64(from), nil
}

func (a *Server) lostNonce(r *http.Request, page lostNoncePage, n uint64) (lostNonce, error) {
	one := lostNonce{Nonce: n, Intents: []store.MatchingIntent{}, Payouts: []string{}}
	f, read := page.stored[n]
	if read {
		one.Succeeded = &f.Succeeded
	}
	if !read || f.Tx.CallDigest() != f.CallDigest { // the call was not read, or its data are longer than the stored part
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
	one.ConsumingTx = &f.Tx
	for _, o := range page.open {
		call, err := page.chain.ParsePayload(o.Payload)
		if same := err == nil && !o.Unknown && f.Does(call); same && o.TxID == "" {
			one.Payouts = append(one.Payouts, o.RequestID)
		}
	}
	alike, err := a.Store.MatchingIntents(r.Context(), page.s, f.Tx)
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
