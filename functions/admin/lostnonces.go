package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// maxLostPage limits the nonces of one page, since each needs a query of the chain.
const maxLostPage = 20

// lostResponse is a page of lost nonces, with the types of the store and of the manager.
type lostResponse struct {
	client.LostNonces
	Nonces []lostNonce `json:"nonces"`
}

type lostNonce struct {
	client.LostNonce
	ConsumingTx *txmanager.ConsumingTx `json:"consumingTx,omitempty"` // the transaction that consumed the nonce on the chain
	Intents     []store.MatchingIntent `json:"intents"`               // intents with the same to, value and data

	more bool // other intents may match
}

// lostNoncePage is the data from which one page is built.
type lostNoncePage struct {
	s       txmanager.Submitter
	chain   txmanager.ChainConnector
	stored  map[uint64]txmanager.ForeignTransaction
	own     map[uint64][]txmanager.Hash          // stored versions for nonces of the page
	wanted  map[[32]byte][]txmanager.OpenRequest // open requests by the digest of their call
	unknown int                                  // open requests whose call is not known yet
	more    bool                                 // the submitter can have intents that are not compared
	reading txmanager.ForeignScan
}

// lost shows an operator each nonce that the chain has consumed beyond the cursor. With it come the
// transaction that consumed the nonce and every matching intent. The operator names these as requests
// of a resync.
func (a *Server) lost(r *http.Request, s txmanager.Submitter, q map[string]string) (out lostResponse, err error) {
	size, after, err := serve.PageOf(q, serve.LostPlace)
	if err != nil {
		return out, err
	}
	known, err := a.Store.Submitter(r.Context(), s)
	if err != nil {
		return out, err
	}
	chain, err := a.ChainOf(s)
	if err != nil {
		return out, err
	}
	v, err := chain.Query(r.Context(), txmanager.ChainQuery{Submitter: s, Account: true, FinalCount: true})
	if err != nil {
		return out, web.UnavailableBecause(err, "the chain's count of the account could not be read")
	}
	first := uint64(known.NextNonce)
	if known.InFlightNonce != nil {
		first = uint64(*known.InFlightNonce)
	}
	from := max(first, uint64(after+1))
	below := min(v.Account.LatestCount, from+uint64(min(size, maxLostPage)))
	page, err := a.lostPage(r.Context(), known, chain, from, below)
	if err != nil {
		return out, err
	}
	out.LostNonces = client.LostNonces{ChainCount: v.Account.LatestCount, FinalCount: v.FinalCount, NextNonce: uint64(known.NextNonce), UnknownCalls: page.unknown}
	if out.Nonces, err = a.lostNonces(r.Context(), page, from, below); err != nil {
		return out, err
	}
	out.IntentsMore = page.more || slices.ContainsFunc(out.Nonces, func(n lostNonce) bool { return n.more })
	if below < v.Account.LatestCount && from < below {
		out.NextPageToken = serve.PageToken(int64(below)-1, serve.LostPlace)
	}
	return out, nil
}

// lostPage reads the data of the page of these nonces.
func (a *Server) lostPage(ctx context.Context, known store.SubmitterView, chain txmanager.ChainConnector, from, below uint64) (page lostNoncePage, err error) {
	page = lostNoncePage{s: known.Submitter, chain: chain, stored: make(map[uint64]txmanager.ForeignTransaction)}
	open, err := a.Store.OpenRequests(ctx, page.s)
	if err != nil {
		return page, err
	}
	page.wanted, page.unknown = wantedOf(chain, open)
	if page.more, err = a.Store.HasMoreIntents(ctx, page.s); err != nil {
		return page, err
	}
	read, err := a.Store.ForeignTransactions(ctx, page.s, from, below)
	if err != nil {
		return page, err
	}
	for _, f := range read {
		page.stored[f.Nonce] = f
	}
	if page.reading, err = a.scanOf(ctx, known); err != nil {
		return page, err
	}
	page.own, err = a.Store.OwnVersions(ctx, page.s, from, below)
	return page, err
}

// wantedOf returns the open requests by the digest of their call, each list with the oldest first, and the number of those
// whose call is not known yet.
func wantedOf(chain txmanager.ChainConnector, open []txmanager.OpenRequest) (wanted map[[32]byte][]txmanager.OpenRequest, unknown int) {
	wanted = make(map[[32]byte][]txmanager.OpenRequest)
	for _, o := range open {
		if o.Unknown {
			unknown++
			continue
		}
		if call, err := chain.ParsePayload(o.Payload); err == nil {
			wanted[call.Digest()] = append(wanted[call.Digest()], o)
		}
	}
	for _, same := range wanted {
		slices.SortFunc(same, func(a, b txmanager.OpenRequest) int { return strings.Compare(a.TxID, b.TxID) })
	}
	return wanted, unknown
}

// lostNonces returns the evidence about each nonce that a foreign transaction has consumed.
func (a *Server) lostNonces(ctx context.Context, page lostNoncePage, from, below uint64) ([]lostNonce, error) {
	all := []lostNonce{}
	for n := from; n < below; n++ {
		one, err := a.lostNonce(ctx, page, n)
		if err != nil {
			return nil, err
		}
		if own, err := page.consumedByOwn(ctx, one); err != nil {
			return nil, err
		} else if !own { // an own one is mined but not final yet: it is not lost
			all = append(all, one)
		}
	}
	return all, nil
}

// scanOf returns how far the blocks of the open PROTECT incident have been scanned.
func (a *Server) scanOf(ctx context.Context, known store.SubmitterView) (txmanager.ForeignScan, error) {
	var open struct{ Incident int }
	if known.Protect != nil {
		if err := json.Unmarshal(known.Protect, &open); err != nil {
			return txmanager.ForeignScan{}, err
		}
	}
	return a.Store.ForeignScan(ctx, known.Submitter, open.Incident, uint64(known.NextNonce))
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

func (a *Server) lostNonce(ctx context.Context, page lostNoncePage, n uint64) (lostNonce, error) {
	one := lostNonce{LostNonce: client.LostNonce{Nonce: n, Payouts: []string{}}, Intents: []store.MatchingIntent{}}
	f, read := page.stored[n]
	if read {
		one.Succeeded = &f.Succeeded
	}
	if !read || f.Tx.CallDigest() != f.CallDigest { // the call was not read, or its data are longer than the stored part
		taker, err := page.chain.FindConsumingTx(ctx, page.s, n)
		if err != nil && !read {
			if one.Unknown = err.Error(); errors.Is(err, txmanager.ErrNoCounts) {
				one.Unknown = page.reading.Progress() + "; " + one.Unknown
			}
			return one, ctx.Err()
		}
		if err == nil {
			f.Tx, f.CallDigest = taker, taker.CallDigest()
		}
	}
	one.ConsumingTx = &f.Tx
	page.addOpen(&one, f)
	alike, err := a.Store.MatchingIntents(ctx, page.s, f.Tx)
	if err != nil {
		return one, err
	}
	one.more = one.more || len(alike) == store.MaxMatching || f.Tx.CallDigest() != f.CallDigest // the data are not all known
	for _, intent := range alike {
		if call, err := page.chain.ParsePayload(intent.Payload); err == nil && f.Does(call) {
			one.Intents = append(one.Intents, intent)
		}
	}
	return one, nil
}

// addOpen adds the queued intents and the open payouts with the call of the foreign transaction. All of
// them are compared. It lists the oldest intents, which are at the head of the queue.
func (page lostNoncePage) addOpen(one *lostNonce, f txmanager.ForeignTransaction) {
	for _, o := range page.wanted[f.CallDigest] {
		switch {
		case o.TxID == "":
			one.Payouts = append(one.Payouts, o.RequestID)
		case len(one.Intents) < store.MaxMatching:
			one.Intents = append(one.Intents, store.MatchingIntent{TxID: o.TxID, RequestID: o.RequestID, State: txmanager.Queued})
		default:
			one.more = true
		}
	}
}
