package functions

import (
	"cmp"
	"fmt"
	"math/big"
	"time"

	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/worker"
)

func leaseRules(c config.Lease) lease.Rules {
	return lease.Rules{
		Duration:           c.Duration,
		RenewBelow:         c.Duration - c.RenewInterval, // by default above the 5 s that a call needs
		ClockSkewAllowance: c.ClockSkewAllowance,
	}
}

// chainRules returns the settings under which a chain's submitters are served.
func chainRules(c config.Config, of config.ServedChain) rules.Rules {
	return rules.Rules{
		Limits: feeLimits(c),
		Finality: rules.Finality{
			By: of.Finality, Confirmations: uint64(of.Confirmations), BlockTime: of.BlockTime,
			WatchEvery: c.Finality.StaleReceiptTimeout, WatchDepth: uint64(c.Finality.WatchDepth),
		},
		Broadcasting:         c.Broadcasting,
		Strict:               c.Nonce.Strict,
		DeferAfter:           c.Nonce.DeferAfter,
		AskBeforePlaceholder: c.Nonce.Placeholder == config.PlaceholderAsk,
		Inspection:           inspection(c.Intents.Diagnose),
	}
}

// feeLimits returns the deployment's limits on fees.
func feeLimits(c config.Config) gas.Limits {
	return gas.Limits{
		MaxFeePerGasWei:      new(big.Int).SetUint64(c.Fees.MaxFeePerGas),
		TxFeeCapWei:          new(big.Int).SetUint64(c.Fees.MaxFeePerTx),
		TipMultiple:          c.Fees.MaxTipMultiple,
		TipFloorWei:          new(big.Int).SetUint64(c.Fees.MinTipBound),
		PlaceholderFeeCapWei: new(big.Int).SetUint64(c.Nonce.PlaceholderMaxFee),
		Bump:                 bumpLimits(c.GasBump),
	}
}

// timing returns the time limits of a lease session.
func timing(c config.Config) session.Timing {
	return session.Timing{Lease: leaseRules(c.Lease), CallTimeout: c.RPC.Timeout, IterationsEndAfter: c.Tasks.DispatchDeadline / 2}
}

// deadline returns how long a request may take: the time-out of the process's only function, or that of a task.
func deadline(c config.Config) time.Duration {
	if target := c.Platform.FunctionTarget; target == "" || target == All {
		return c.Tasks.DispatchDeadline
	}
	return cmp.Or(c.Platform.Timeout, c.Tasks.DispatchDeadline)
}

// workerLimits returns the time limits of signatures and handler calls.
func workerLimits(c config.Config) worker.Limits {
	return worker.Limits{
		SignTimeout: c.Signer.Timeout, SignParallel: c.Signer.Parallel,
		HandlerTimeout:  max(c.Handlers.Timeout, c.RPC.Timeout), // for compiled-in handlers, bounded by the lease; a service has its own
		HandlerPatience: c.Handlers.Patience,
	}
}

// bumpLimits returns the limits of gas bumps; nil: only decisions replace a transaction.
func bumpLimits(c config.GasBump) *gas.BumpLimits {
	if !c.Enabled {
		return nil
	}
	return &gas.BumpLimits{
		Multiplier: c.Multiplier, MinInterval: c.MinInterval, MaxAttempts: c.MaxAttempts,
		FeeCapWei: new(big.Int).SetUint64(c.MaxFeePerGas), BudgetWei: wei(c.BudgetPerDay),
	}
}

// bumpAfter returns the age in which a transaction may be replaced; 0: never.
func bumpAfter(c config.GasBump) time.Duration {
	if !c.Enabled {
		return 0
	}
	return c.MinInterval
}

// maxInspected bounds the transactions inspected at once, so that a wide window fits in one request.
const maxInspected = 32

// inspection returns the diagnosis of transactions without a receipt; nil: it is off.
func inspection(on bool) *rules.Inspection {
	if !on {
		return nil
	}
	return &rules.Inspection{Inspector: rules.DefaultInspector{}, MaxVersions: maxInspected}
}

// wei converts gwei to wei.
func wei(gwei uint64) *big.Int {
	return new(big.Int).Mul(new(big.Int).SetUint64(gwei), big.NewInt(gas.WeiPerGwei))
}

// attentionLimits are the limits beyond which something needs a person. The limit of a wait is that of
// the gauge of blocked heads.
func (a *App) attentionLimits() store.AttentionLimits {
	l := store.AttentionLimits{Transfers: a.transfers.rules, Endpoints: a.base.Endpoints}
	for _, cause := range txmanager.WaitCauses() {
		guide := cause.Guide()
		if guide.Limit > 0 {
			l.Waits = append(l.Waits, store.WaitLimit{Cause: cause, Limit: guide.Limit})
		}
		for _, c := range a.base.Chains {
			if limit := guide.LimitOn(c.Rules.TimeToFinality()); limit > 0 {
				l.Waits = append(l.Waits, store.WaitLimit{Chain: fmt.Sprintf("%s:%d", c.Namespace, c.ID), Cause: cause, Limit: limit})
			}
		}
	}
	return l
}
