package demo

import (
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

// The same seed draws the same transfers: both directions, every asset, each with its own cid, and some
// above the balance.
func TestSameSeedDrawsSameTransfers(t *testing.T) {
	t.Parallel()
	o := TransferOptions{Transfers: 400, Users: 5, Seed: 3}
	a, b := draw(o), draw(o)
	seen, cids := map[string]int{}, map[string]bool{}
	for i, w := range a {
		if w.user < 1 || w.user > 5 || w.user != b[i].user || w.Amount != b[i].Amount {
			t.Fatalf("transfer %d: got user %d, %v and %v; want users 1 to 5, and the same twice", i, w.user, w.TransferRequest, b[i].TransferRequest)
		}
		seen[w.From]++
		seen[w.Asset]++
		cids[w.CID] = true
		amount, ok := transfer.ParseAmount(w.Amount)
		for _, asset := range []transfer.Asset{stack.USDT, stack.BTC, stack.JPY} {
			if w.Asset != asset.Name {
				continue
			}
			units, reason := amount.Units(asset.Precision)
			if !ok || reason != "" || units > asset.MaxUnits {
				t.Errorf("transfer %d: got %v, want an amount of %s that may be asked for", i, w.TransferRequest, asset.Name)
			}
			if units > 2*opening[asset.ID] {
				seen["too much"]++
			}
		}
	}
	if len(cids) != len(a) || seen[string(transfer.Funding)] != 200 || seen[string(transfer.Spot)] != 200 || len(seen) != 6 || seen["too much"] == 0 {
		t.Errorf("drawn: got %v with %d cids, want both ways, three assets, and some too much", seen, len(cids))
	}
}
