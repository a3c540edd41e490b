package txmanager

import (
	"context"
	"fmt"
)

// AgreedAccount queries the chain for the account of s: its counts, and whether it has code. For a
// chain with several nodes it queries all. The answer needs a quorum of nodes, and more nodes that
// agree than disagree. A node that lags is not counted. A node that gave no answer, and was not
// excluded, counts as disagreeing.
//
// The error wraps [ErrNoQuorum] if no answer has enough nodes.
func AgreedAccount(ctx context.Context, chain ChainConnector, s Submitter) (Account, error) {
	q := ChainQuery{Submitter: s, Account: true}
	v, err := chain.Query(ctx, q)
	if err != nil || v.OtherNodes == nil {
		return v.Account, err
	}
	views := append([]ChainObservation{v}, v.OtherNodes.QueryOthers(ctx, q, allNodes, v.Node)...)
	for _, candidate := range views {
		if candidate.NoAnswer || candidate.Lagging {
			continue
		}
		yes, no := 0, 0
		for _, other := range views {
			switch {
			case other.Lagging:
			case !other.NoAnswer && sameUse(candidate.Account, other.Account):
				yes++
			default:
				no++
			}
		}
		if yes >= v.OtherNodes.Quorum() && yes > no {
			return candidate.Account, nil
		}
	}
	return Account{}, fmt.Errorf("%w on the account's counts: %d were asked, and %d must say the same", ErrNoQuorum, len(views), v.OtherNodes.Quorum())
}

// sameUse reports whether two nodes show the same counts and code of an account.
func sameUse(a, b Account) bool {
	return a.LatestCount == b.LatestCount && a.PendingCount == b.PendingCount && a.HasCode == b.HasCode
}
