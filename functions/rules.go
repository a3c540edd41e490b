package functions

import (
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/params"

	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/txmanager"
)

func leaseRules(c config.Lease) lease.Rules {
	return lease.Rules{
		Duration:           c.Duration,
		RenewBelow:         c.Duration - c.RenewInterval, // by default above the 5 s that a call needs
		ClockSkewAllowance: c.ClockSkewAllowance,
	}
}

// rules returns the settings under which a chain's submitters are served.
func rules(c config.Config, of config.ServedChain) txmanager.Rules {
	return txmanager.Rules{
		Lease:                leaseRules(c.Lease),
		Finality:             txmanager.Finality(of.Finality),
		Confirmations:        uint64(of.Confirmations),
		BlockTime:            of.BlockTime,
		WatchEvery:           c.Confirmations.StaleReceiptTimeout,
		WatchDepth:           uint64(c.Reorg.WatchDepth),
		FeeCapWei:            new(big.Int).SetUint64(c.Fees.MaxFeePerGas),
		TxFeeCapWei:          new(big.Int).SetUint64(c.Fees.MaxFeePerTx),
		TipMultiple:          c.Fees.MaxTipMultiple,
		TipFloorWei:          new(big.Int).SetUint64(c.Fees.MinTipBound),
		Strict:               c.Nonce.Strict,
		DeferAfter:           c.Nonce.DeferAfter,
		AskBeforePlaceholder: c.Nonce.Placeholder == config.PlaceholderAsk,
		PlaceholderFeeCapWei: new(big.Int).SetUint64(c.Nonce.PlaceholderMaxFee),
		Bump:                 bumpPolicy(c.GasBump),
		Inspector:            inspector(c.Mempool),
		Resubmit:             c.Resubmit.Enabled,
		ResubmitEvery:        c.Resubmit.Interval,
		MaxResubmits:         c.Resubmit.MaxAttempts,
		StuckAfter:           c.Stuck.After,
		CallTimeout:          c.RPC.Timeout,
		SignTimeout:          c.Signer.Timeout,
		SignParallel:         c.Signer.Parallel,
		HandlerTimeout:       max(c.Handlers.Timeout, c.RPC.Timeout), // for compiled-in handlers, bounded by the lease; a service has its own
		HandlerPatience:      c.Handlers.Patience,
		IterationsEndAfter:   c.Tasks.DispatchDeadline / 2,
	}
}

// bumpPolicy returns when and how transactions are replaced at a higher fee; nil: only by decisions.
func bumpPolicy(c config.GasBump) *txmanager.GasBumpPolicy {
	if !c.Enabled {
		return nil
	}
	p := &txmanager.GasBumpPolicy{
		MinInterval: c.MinInterval, MaxAttempts: c.MaxAttempts, Multiplier: c.Multiplier,
		FeeCapWei: new(big.Int).SetUint64(c.MaxFeePerGas), BudgetWei: wei(c.BudgetPerDay),
	}
	if c.MaxFeePerTx > 0 {
		p.TxFeeCapWei = wei(c.MaxFeePerTx)
	}
	return p
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

// inspector returns what classifies transactions without a receipt; nil: it is off.
func inspector(c config.Mempool) *txmanager.MempoolInspector {
	if !c.Diagnose {
		return nil
	}
	return &txmanager.MempoolInspector{Most: maxInspected}
}

// wei converts gwei to wei.
func wei(gwei uint64) *big.Int {
	return new(big.Int).Mul(new(big.Int).SetUint64(gwei), big.NewInt(params.GWei))
}
