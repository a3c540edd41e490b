package load

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// payerReleaseRequest returns the release of the payer after a restore. It is always a resync.
// It names the requests shown by the page of lost nonces, and fills the window.
func (o *Operator) payerReleaseRequest(ctx context.Context, final uint64) (map[string]any, error) {
	lost, err := o.lostPayerRequests(ctx)
	if err != nil {
		return nil, err
	}
	names, unread := lost.names, lost.unread
	body := map[string]any{"mode": txmanager.Resync, "count": final, "requests": names, "reason": "restored; the page of lost nonces was read"}
	if len(unread) > 0 { // no node knows them yet; the page shows them once their hashes were given
		_, hashes, err := o.lostRequests(ctx, o.Payer, unread[0], final)
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(hashes, func(n uint64, _ string) bool { return !slices.Contains(unread, n) })
		body["hashes"] = hashes
		return body, nil
	}
	if lost.alone && o.Source.IntN(2) == 0 {
		maps.DeleteFunc(names, func(_ uint64, name string) bool { return name != txmanager.NoRequest })
		body["others"] = "matching"
	}
	return body, nil
}

// lostNames are the requests of the payer's lost nonces.
type lostNames struct {
	names  map[uint64]string
	used   map[string]bool
	unread []uint64 // nonces that the pages cannot show
	alone  bool     // each nonce has at most one match, and no two have the same
}

// lostPayerRequests reads the pages of lost nonces.
func (o *Operator) lostPayerRequests(ctx context.Context) (*lostNames, error) {
	l := &lostNames{names: make(map[uint64]string), used: make(map[string]bool), alone: true}
	for token := ""; ; {
		var page client.LostNonces
		if a, ok := o.read(ctx, "/admin/v1/submitters/"+string(o.Payer)+"/lost"+token, &page); !ok {
			return nil, fmt.Errorf("the page of lost nonces: %s", a)
		}
		for _, n := range page.Nonces {
			if n.ConsumingTx == nil {
				o.Note("operator: nonce %d of the payer is not read so far: %s", n.Nonce, n.Unknown)
			}
			l.add(n, n.ConsumingTx != nil && o.signedByForeignSigner(o.Payer, n.ConsumingTx.Hash))
		}
		if page.NextPageToken == "" {
			return l, nil
		}
		token = "?pageToken=" + page.NextPageToken
	}
}

// add names the request of a nonce. A nonce without a matching request is left open: its transfer
// was lost, and its user repeats it.
func (l *lostNames) add(n client.LostNonce, foreign bool) {
	if n.ConsumingTx == nil {
		l.unread = append(l.unread, n.Nonce)
		return
	}
	candidates := slices.Clone(n.Payouts)
	for _, in := range n.Intents {
		if !slices.Contains(candidates, in.RequestID) {
			candidates = append(candidates, in.RequestID)
		}
	}
	if foreign {
		l.alone = l.alone && len(candidates) == 0
		l.names[n.Nonce] = txmanager.NoRequest
		return
	}
	for _, name := range candidates {
		if l.alone = l.alone && !l.used[name] && len(candidates) == 1; !l.used[name] {
			l.names[n.Nonce], l.used[name] = name, true
			return
		}
	}
}

// decidePayments does for the payer what [Operator.decideForeign] does for the others.
// A payment that no user will repeat is written off; the operator of transfers settles it.
func (o *Operator) decidePayments(ctx context.Context) {
	for _, f := range o.foreign(ctx, o.Payer) {
		switch {
		case f.TxID != "":
			o.match(ctx, o.Payer, f.Nonce, f.TxID, "its user has repeated it")
		case isPlaceholder(o.Payer, f), o.signedByForeignSigner(o.Payer, f.TxHash):
			o.writeOff(ctx, o.Payer, f.Nonce, "it was no payout")
		case o.IsNeverRepeated(ctx, common.HexToHash(f.TxHash)):
			o.writeOff(ctx, o.Payer, f.Nonce, "its user has a final answer, and it is settled")
		}
	}
}
