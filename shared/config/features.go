package config

import (
	"math/big"
	"regexp"
	"time"
)

// GasBump configures the replacement of transactions without a receipt at a higher fee.
type GasBump struct {
	// Enabled is true if gas bumps are made.
	Enabled bool
	// MinInterval is the time before a version is replaced: below [Stuck.After] while Enabled.
	MinInterval time.Duration
	// MaxAttempts is the largest number of replacements of one transaction.
	MaxAttempts int
	// Multiplier raises both fees, in thousandths.
	Multiplier int64
	// MaxFeePerGas is the highest fee that a replacement offers, in wei per gas: not above
	// [Fees.MaxFeePerGas].
	MaxFeePerGas uint64
	// MaxFeePerTx is the most that the gas of one transaction may cost, in gwei; 0: no
	// separate limit.
	MaxFeePerTx uint64
	// BudgetPerDay limits what the replacements of one submitter may add to its highest
	// possible cost within 24 hours, in gwei.
	BudgetPerDay uint64
}

func (g *GasBump) settings() []setting {
	return []setting{
		{name: "gasbump.enabled", def: "false",
			meaning: "automatically replace a transaction that stays without a receipt, at the same nonce and a higher fee",
			field:   boolean(&g.Enabled)},
		{name: "gasbump.minInterval", def: "60s",
			meaning: "how long each version is waited for; below `stuck.after`, and below `resubmit.interval` times `resubmit.maxAttempts`",
			field:   duration(&g.MinInterval, time.Second, 24*time.Hour)},
		{name: "gasbump.maxAttempts", def: "10",
			meaning: "how often one transaction is replaced",
			field:   number(&g.MaxAttempts, "a number of replacements", 1, 100)},
		{name: "gasbump.multiplier", def: "1.125",
			meaning: "by how much both fees rise each time, unless blocks need more; nodes refuse less than 1.1",
			field:   thousandths(&g.Multiplier, "1.1", "10")},
		{name: "gasbump.maxFeePerGas", def: "500000000000",
			meaning: "the most that a replacement offers, in wei per gas; `fees.maxFeePerGas` and an intent's own `maxFeePerGas` bound its replacements too",
			field:   number(&g.MaxFeePerGas, "an amount in wei per gas", 1, maxBigint)},
		{name: "gasbump.maxFeePerTx", def: "0",
			meaning: "the most that the gas of one transaction may cost after a replacement, in gwei; 0: as much as its gas costs at `gasbump.maxFeePerGas`",
			field:   number(&g.MaxFeePerTx, "an amount in gwei", 0, maxBigint)},
		{name: "gasbump.budgetPerDay", def: "1000000000",
			meaning: "how much the replacements of one submitter may add, within 24 hours, to the most that its transactions pay, in gwei",
			field:   number(&g.BudgetPerDay, "an amount in gwei", 1, maxBigint)},
	}
}

// Mempool configures the diagnosis of transactions that wait in nodes' pools.
type Mempool struct {
	// Diagnose is true if each chain query reports where a transaction without a receipt seems
	// to be.
	Diagnose bool
}

func (m *Mempool) settings() []setting {
	return []setting{
		{name: "mempool.diagnose.enabled", def: "false",
			meaning: "record of each transaction without a receipt whether the node has it, or it is perhaps lost, or perhaps replaced: for operators' decisions only",
			field:   boolean(&m.Diagnose)},
	}
}

var decimal = regexp.MustCompile(`^(0|[1-9][0-9]{0,5})([.][0-9]{1,3})?$`)

// thousandths parses a factor with at most three decimals and stores it times 1,000.
func thousandths(p *int64, low, high string) field {
	parse := func(text string) (int64, bool) {
		if !decimal.MatchString(text) {
			return 0, false
		}
		exact, ok := new(big.Rat).SetString(text)
		return new(big.Int).Quo(exact.Mul(exact, big.NewRat(1000, 1)).Num(), big.NewInt(1)).Int64(), ok
	}
	from, _ := parse(low)
	to, _ := parse(high)
	return bind(p, "a factor from "+low+" to "+high+", with at most three decimals", func(text string) (int64, bool) {
		n, ok := parse(text)
		return n, ok && from <= n && n <= to
	})
}
