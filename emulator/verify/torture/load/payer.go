package load

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// payerReleaseRequest returns the release of the payer after a restore. It is always a resync.
// It names the requests shown by the page of lost nonces, and fills the window.
func (o *Operator) payerReleaseRequest(ctx context.Context, client *ethclient.Client, final uint64) (map[string]any, error) {
	names, unread, alone, err := o.lostPayerRequests(ctx)
	if err != nil {
		return nil, err
	}
	body := map[string]any{"mode": txmanager.Resync, "count": final, "requests": names, "reason": "restored; the page of lost nonces was read"}
	if len(unread) > 0 { // no node knows them yet; the page shows them once their hashes were given
		_, hashes, err := o.lostRequests(ctx, client, o.Payer, unread[0], final)
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(hashes, func(n uint64, _ string) bool { return !slices.Contains(unread, n) })
		body["hashes"] = hashes
		return body, nil
	}
	if alone && o.Source.IntN(2) == 0 {
		for n, name := range names {
			if name != txmanager.NoRequest {
				delete(names, n)
			}
		}
		body["others"] = "matching"
	}
	return body, nil
}

// lostPayerRequests returns the request of each lost nonce of the payer, as the pages show
// it, and the nonces that the pages cannot show. A nonce without a matching request is left
// open: its transfer was lost, and its user repeats it. The result alone reports whether each
// nonce has at most one match and no two have the same.
func (o *Operator) lostPayerRequests(ctx context.Context) (names map[uint64]string, unread []uint64, alone bool, err error) {
	names, alone = make(map[uint64]string), true
	used := make(map[string]bool)
	for from := ""; ; {
		status, text, err := o.call(ctx, http.MethodGet, "/admin/v1/submitters/"+string(o.Payer)+"/lost"+from, nil)
		var page client.LostNonces
		if err != nil || status != http.StatusOK || json.Unmarshal(text, &page) != nil {
			return nil, nil, false, fmt.Errorf("the page of lost nonces: %d %s, error: %v", status, text, err)
		}
		for _, n := range page.Nonces {
			if n.ConsumingTx == nil {
				o.Note("operator: nonce %d of the payer is not read so far: %s", n.Nonce, n.Unknown)
				unread = append(unread, n.Nonce)
				continue
			}
			candidates := slices.Clone(n.Payouts)
			for _, in := range n.Intents {
				if !slices.Contains(candidates, in.RequestID) {
					candidates = append(candidates, in.RequestID)
				}
			}
			if o.signedByForeignSigner(o.Payer, n.ConsumingTx.Hash) {
				candidates, alone = nil, alone && len(candidates) == 0
				names[n.Nonce] = txmanager.NoRequest
			}
			for _, name := range candidates {
				if alone = alone && !used[name] && len(candidates) == 1; !used[name] {
					names[n.Nonce], used[name] = name, true
					break
				}
			}
		}
		if page.NextFrom == nil {
			return names, unread, alone, nil
		}
		from = fmt.Sprintf("?from=%d", *page.NextFrom)
	}
}

// decidePayments does for the payer what [Operator.decideForeign] does for the others.
// A payment that no user will repeat is written off; the operator of transfers settles it.
func (o *Operator) decidePayments(ctx context.Context) {
	status, text, err := o.call(ctx, http.MethodGet, "/admin/v1/submitters/"+string(o.Payer)+"/foreign", nil)
	var list struct {
		Foreign []struct {
			Nonce            uint64
			TxHash, ValueWei string
			To, TxID         *string
		}
	}
	if err != nil || status != http.StatusOK || json.Unmarshal(text, &list) != nil {
		return
	}
	for _, f := range list.Foreign {
		nothing := f.ValueWei == "0" && f.To != nil && strings.EqualFold(*f.To, o.Payer.Address().String())
		switch {
		case f.TxID != nil:
			o.decideOne(ctx, o.Payer, Matched, "match", map[string]any{"nonce": f.Nonce, "txId": f.TxID, "reason": "its user has repeated it"})
		case nothing, o.signedByForeignSigner(o.Payer, f.TxHash):
			o.decideOne(ctx, o.Payer, WrittenOff, "write-off", map[string]any{"nonce": f.Nonce, "reason": "it was no payout"})
		case o.IsNeverRepeated(ctx, common.HexToHash(f.TxHash)):
			o.decideOne(ctx, o.Payer, WrittenOff, "write-off", map[string]any{"nonce": f.Nonce, "reason": "its user has a final answer, and it is settled"})
		}
	}
}
