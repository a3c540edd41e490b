package txmanager

import (
	"math/big"
)

// Limits are the deployment's limits on fees, and its policy for gas bumps.
type Limits struct {
	FeeCapWei            *big.Int       // the highest fee of a first version, wei per gas; nil: no limit
	TxFeeCapWei          *big.Int       // the highest gas cost of a first version, wei; nil: no limit
	TipMultiple          int64          // the tip of a first version or gas bump is at most this multiple of the nodes' advice; 0: no limit
	TipFloorWei          *big.Int       // the tip limit is never below this, wei per gas; nil: no floor
	PlaceholderFeeCapWei *big.Int       // the highest fee of a placeholder, wei per gas; nil: no limit
	Bump                 *GasBumpPolicy // nil: only a decision replaces a transaction
}
