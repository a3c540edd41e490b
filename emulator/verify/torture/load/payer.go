package load

import (
	"context"
	"maps"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// payerReleaseRequest returns the release of the payer after a restore. It is always a resync.
// It names the requests shown by the page of lost nonces, and fills the window.
func (o *Operator) payerReleaseRequest(ctx context.Context, final uint64) map[string]any {
	lost := o.readLostNonces(ctx)
	names, alone := o.nameRequests(lost)
	body := map[string]any{"mode": txmanager.Resync, "count": final, "requests": names, "reason": "restored; the page of lost nonces was read"}
	unread := slices.DeleteFunc(lost, func(n client.LostNonce) bool { return n.ConsumingTx != nil })
	switch {
	case len(unread) > 0: // no node knows them yet; the page shows them once their hashes were given
		_, hashes := o.lostRequests(ctx, o.Payer, unread[0].Nonce, final)
		maps.DeleteFunc(hashes, func(n uint64, _ string) bool {
			return !slices.ContainsFunc(unread, func(one client.LostNonce) bool { return one.Nonce == n })
		})
		body["hashes"] = hashes
	case alone && o.Source.IntN(2) == 0:
		maps.DeleteFunc(names, func(_ uint64, name string) bool { return name != txmanager.NoRequest })
		body["others"] = "matching"
	}
	return body
}

func (o *Operator) readLostNonces(ctx context.Context) (all []client.LostNonce) {
	for token := ""; ; {
		var page client.LostNonces
		if a, ok := o.Read(ctx, "/admin/v1/submitters/"+string(o.Payer)+"/lost"+token, &page); !ok {
			steps.Stopf("the page of lost nonces: %s", a)
		}
		all = append(all, page.Nonces...)
		if page.NextPageToken == "" {
			return all
		}
		token = "?pageToken=" + page.NextPageToken
	}
}

// nameRequests returns the request of each nonce that the pages can show. A nonce without a matching request is left
// open: its transfer was lost, and its user repeats it. It also reports whether each nonce has at most one match, and no
// two have the same.
func (o *Operator) nameRequests(lost []client.LostNonce) (names map[uint64]string, alone bool) {
	names, alone = make(map[uint64]string), true
	used := make(map[string]bool)
	for _, n := range lost {
		if n.ConsumingTx == nil {
			o.Note("operator: nonce %d of the payer is not read so far: %s", n.Nonce, n.Unknown)
			continue
		}
		candidates := slices.Clone(n.Payouts)
		for _, in := range n.Intents {
			if !slices.Contains(candidates, in.RequestID) {
				candidates = append(candidates, in.RequestID)
			}
		}
		if o.signedByForeignSigner(o.Payer, n.ConsumingTx.Hash) {
			names[n.Nonce], alone = txmanager.NoRequest, alone && len(candidates) == 0
			continue
		}
		free := slices.IndexFunc(candidates, func(name string) bool { return !used[name] })
		if free >= 0 {
			names[n.Nonce], used[candidates[free]] = candidates[free], true
		}
		alone = alone && (len(candidates) == 0 || len(candidates) == 1 && free == 0)
	}
	return names, alone
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
