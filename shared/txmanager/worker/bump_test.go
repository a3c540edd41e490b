package worker

import (
	"math/big"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// bumpRules are rules with a gas bump each minute, up to 1,000 wei per gas.
func bumpRules() rules.Rules {
	r := rulesOf(3)
	r.Bump = &gas.BumpPolicy{MinInterval: time.Minute, MaxAttempts: 3, Multiplier: 1125, FeeCapWei: big.NewInt(1000)}
	return r
}
