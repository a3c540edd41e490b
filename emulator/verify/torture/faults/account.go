package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// accountFaults forbid users to move money for a while, with transfers in progress. The
// deployment itself has no fault then.
func accountFaults() []Fault {
	return []Fault{
		{"account frozen for a while", 2, withStatus("FROZEN")},
		{"account disabled for a while", 2, withStatus("DISABLED")},
	}
}

// withStatus gives some users' accounts the status, and later makes them ACTIVE again.
func withStatus(status string) inject {
	return func(ctx context.Context, w *World, r *rand.Rand) (times int, err error) {
		side := []transfer.AccountType{transfer.Funding, transfer.Spot}[r.IntN(2)]
		asset := []transfer.Asset{stack.USDT, stack.BTC, stack.JPY, stack.ETH}[r.IntN(4)]
		for userID := range int64(w.Users - 1) { // the last has none in Funding
			if r.IntN(2) == 0 {
				continue
			}
			if err = w.setStatus(ctx, side, userID+1, asset.ID, status); err == nil {
				times++
				defer func() { _ = w.setStatus(context.WithoutCancel(ctx), side, userID+1, asset.ID, "ACTIVE") }()
			}
		}
		retry.Pause(ctx, randomDuration(r, time.Second, 5*time.Second))
		if times > 0 {
			err = nil
		}
		return times, err
	}
}

// setStatus tries until the ledger answers: it can be down.
func (w *World) setStatus(ctx context.Context, side transfer.AccountType, userID int64, assetID int32, status string) error {
	err := fmt.Errorf("not tried")
	until(ctx, targetTimeout, func() bool {
		once, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		err = w.Stack.SetStatus(once, side, userID, assetID, status)
		return err == nil
	})
	return err
}
