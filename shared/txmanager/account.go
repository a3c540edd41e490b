package txmanager

import (
	"context"
	"fmt"
)

// AgreedAccount asks the chain for the account of s: its counts, and whether it has code.
// Of a chain with several nodes all are asked. The answer is what a quorum of them says,
// and more nodes than say otherwise. A node that lags is not counted. A node that gave no
// answer, and was not known to be away, counts as one that says otherwise.
//
// The error wraps [ErrNoQuorum] where no answer has so many nodes.
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

// sameUse says that two nodes show the same use of an account.
func sameUse(a, b Account) bool {
	return a.LatestCount == b.LatestCount && a.PendingCount == b.PendingCount && a.HasCode == b.HasCode
}
