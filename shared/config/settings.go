package config

import (
	"slices"
	"time"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// settings is the table of all settings, in the order of docs/settings.md. Each row binds one to the
// field of c that holds it.
func (c *Config) settings() []setting {
	return slices.Concat(
		c.leaseSettings(), c.nonceSettings(), c.feeSettings(), c.intentSettings(), c.finalitySettings(), c.transferSettings(),
		c.conservationSettings(), c.chainSettings(), c.signerSettings(), c.serviceSettings(), c.databaseSettings(), c.queueSettings(),
		c.authSettings(), c.consoleSettings(), c.platformSettings(),
	)
}

// leaseSettings are the settings of leases.
func (c *Config) leaseSettings() []setting {
	return []setting{
		{name: "lease.duration", def: "10s",
			meaning: "how long the lease of a submitter lasts unless renewed, and so how long others wait for a holder that died. Raise it where one call to a node or a signer can take longer than 10s",
			field:   duration(&c.Lease.Duration, 2*time.Second, 5*time.Minute)},
		{name: "lease.renewInterval", def: "3s",
			meaning: "how long a holder works before it renews; below half of `lease.duration`. Change it with that",
			field:   duration(&c.Lease.RenewInterval, 500*time.Millisecond, time.Minute)},
		{name: "clockSkewAllowance", def: "1s",
			meaning: "how long another invocation's lease must have been expired before it is taken over; below `lease.duration`. Raise it where Postgres may move to a server whose clock differs by more",
			field:   duration(&c.Lease.ClockSkewAllowance, 0, time.Minute)},
		{name: "advance.batchWait", def: "0s",
			meaning: "how long an advance may wait for those of other submitters, to take its lease in one round trip with theirs; 0s: it waits for none. Raise it where many submitters send at a steady rate and their latency matters less than the database's load",
			field:   duration(&c.Lease.BatchWait, 0, time.Second)},
	}
}

// nonceSettings are the settings of nonces, placeholders and reservations.
func (c *Config) nonceSettings() []setting {
	return []setting{
		{name: "nonce.startFrom", def: "0",
			meaning: "the first nonce of a newly registered submitter; registration compares it with the chain's count. Leave it at 0 unless all accounts that you register have sent that many transactions",
			field:   number(&c.Nonce.StartFrom, "a nonce", 0, maxBigint)},
		{name: "nonce.strict.enabled", def: "true",
			meaning: "one transaction in flight for each submitter, whatever window it was registered with. The next nonce is allocated when the last one is consumed and final. A registration with a window above 1 is refused. Set it to false for accounts that need more than one transaction in flight",
			field:   boolean(&c.Nonce.Strict)},
		{name: "nonce.placeholder", def: string(PlaceholderAuto),
			meaning: "whether a transaction with a nonce is cancelled, or a nonce filled, by a placeholder at once, or only by an operator's decision. Choose ask where a person has to see each replacement",
			field:   choice(&c.Nonce.Placeholder, PlaceholderAuto, PlaceholderAsk)},
		{name: "nonce.placeholderMaxFeePerGas", def: "650000000000",
			meaning: "the maximum price of a placeholder, in wei per gas. Every other replacement pays at most 8/9 of it. It must be at least 81/64 of `fees.maxFeePerGas`, so that a first version at its ceiling can be replaced, and the replacement by a placeholder",
			field:   number(&c.Nonce.PlaceholderMaxFee, "an amount in wei per gas", 1, maxBigint)},
		{name: "nonce.maxInFlight", constant: true, def: "1",
			meaning: "the window of newly registered submitters; used above 1 only with `nonce.strict.enabled=false`",
			field:   number(&c.Nonce.MaxInFlight, "a number of transactions", 1, 10_000)},
		{name: "nonce.deferAfter", constant: true, def: "1m",
			meaning: "how long the head of a queue waits for its own bounds, such as a `maxFeePerGas` below the base fee. After that, intents of other callers go ahead of it; 0: they never do",
			field:   duration(&c.Nonce.DeferAfter, 0, 24*time.Hour)},
		{name: "hooks.enabled", def: "false",
			meaning: "whether Go code may reserve nonces and sign for them itself, by `Allocate`, `MarkUsed` and `MarkRecyclable`: for migration and operations",
			field:   boolean(&c.Hooks.Enabled)},
		{name: "hooks.reservationTimeout", constant: true, def: "60s",
			meaning: "how long a reserved nonce, and every higher one, waits for its owner's mark; then a placeholder consumes it",
			field:   duration(&c.Hooks.ReservationTimeout, time.Second, 24*time.Hour)},
	}
}

// feeSettings are the settings of fees and gas bumps.
func (c *Config) feeSettings() []setting {
	return []setting{
		{name: "fees.maxFeePerGas", def: "500000000000",
			meaning: "the maximum price of a transaction, in wei per gas, even if the node advises or the caller allows more; while the base fee is above it, intents wait. Set it to what a transaction is worth on the dearest of your chains",
			field:   number(&c.Fees.MaxFeePerGas, "an amount in wei per gas", 1, maxBigint)},
		{name: "fees.maxFeePerTx", def: "750000000000000000",
			meaning: "the maximum cost of a first version's gas, in wei: its gas limit times its `maxFeePerGas`. Two replacements come to 81/64 of it, which should stay below the nodes' own limit (go-ethereum: 1 ether, by `--rpc.txfeecap`)",
			field:   number(&c.Fees.MaxFeePerTx, "an amount in wei", 21_000, maxBigint)},
		{name: "fees.maxTipMultiple", constant: true, def: "10",
			meaning: "the maximum tip of a transaction, as a multiple of the nodes' advice; a higher tip is lowered to it",
			field:   number(&c.Fees.MaxTipMultiple, "a multiple", 1, 1_000_000)},
		{name: "fees.minTipBound", constant: true, def: "1000000000",
			meaning: "the lowest bound that `fees.maxTipMultiple` can give, in wei per gas, also if the nodes advise a tip of 0",
			field:   number(&c.Fees.MinTipBound, "an amount in wei per gas", 1, maxBigint)},
		{name: "fees.history.enabled", def: "false",
			meaning: "take tips from those of the last blocks, by `eth_feeHistory`. The node's own advice is used only if the history is empty. Use it where the node's advice is too high or too low",
			field:   boolean(&c.Fees.History)},
		{name: "fees.history.blocks", constant: true, def: "20",
			meaning: "the number of last blocks whose tips are read; the median over those that are not empty is taken",
			field:   number(&c.Fees.HistoryBlocks, "a number of blocks", 1, 100)},
		{name: "fees.history.percentile", constant: true, def: "50",
			meaning: "the percentile of each block's tips, weighted by gas: a higher one is mined sooner and costs more",
			field:   number(&c.Fees.HistoryPercentile, "a percentile", 1, 100)},
		{name: "gasbump.enabled", def: "false",
			meaning: "automatically replace a transaction that stays without a receipt, at the same nonce and a higher fee. Use it where fees rise for longer than your callers can wait",
			field:   boolean(&c.GasBump.Enabled)},
		{name: "gasbump.minInterval", def: "60s",
			meaning: "how long a version may be without a receipt before it is replaced; below `stuck.after`, and below `resubmit.interval` times `resubmit.maxAttempts`. Lower it on a chain with short blocks",
			field:   duration(&c.GasBump.MinInterval, time.Second, 24*time.Hour)},
		{name: "gasbump.maxAttempts", def: "10",
			meaning: "the maximum number of replacements of one transaction. Lower it to have people decide sooner",
			field:   number(&c.GasBump.MaxAttempts, "a number of replacements", 1, 100)},
		{name: "gasbump.multiplier", def: "1.125",
			meaning: "the factor by which a replacement raises both fees, unless blocks need more; nodes refuse less than 1.1. Raise it where nodes demand more than 1.125",
			field:   thousandths(&c.GasBump.Multiplier, "1.1", "10")},
		{name: "gasbump.maxFeePerGas", def: "500000000000",
			meaning: "the maximum price of a replacement, in wei per gas; `fees.maxFeePerGas` and an intent's own `maxFeePerGas` bound its replacements too. Lower it to pay less for haste than for a first version",
			field:   number(&c.GasBump.MaxFeePerGas, "an amount in wei per gas", 1, maxBigint)},
		{name: "gasbump.budgetPerDay", def: "1000000000",
			meaning: "the maximum that replacements may add within 24 hours to the highest possible cost of one submitter's transactions, in gwei. Set it by the price of the chain's coin",
			field:   number(&c.GasBump.BudgetPerDay, "an amount in gwei", 1, maxBigint)},
	}
}

// intentSettings are the settings of intents from their creation to their receipt.
func (c *Config) intentSettings() []setting {
	return []setting{
		{name: "mempool.diagnose.enabled", def: "false",
			meaning: "record for each transaction without a receipt whether the node has it, may have lost it, or may have replaced it: for operators' decisions only. Switch it on to find out why transactions wait",
			field:   boolean(&c.Intents.Diagnose)},
		{name: "queue.maxPerSubmitter", def: "100000",
			meaning: "how many intents may wait for one submitter; a create beyond it is answered 429 QUEUE_FULL. Raise it for callers that send larger batches",
			field:   number(&c.Intents.MaxQueued, "a number of intents", 1, 10_000_000)},
		{name: "intents.macKeys",
			meaning: "the keys of the MACs of intents, a secret. The first makes MACs, each checks them. A process that accepts intents or signs needs them. While the key is changed, give the new one and then the old one",
			field:   macKeys(&c.Intents.MACKeys)},
		{name: "resubmit.enabled", def: "true",
			meaning: "send a transaction without a receipt again, with the same bytes. Switch it off where a node does this itself",
			field:   boolean(&c.Broadcasting.Resubmit)},
		{name: "resubmit.interval", def: "60s",
			meaning: "how long after a send the next may follow; below `stuck.after`. Lower it on a chain whose nodes forget transactions soon",
			field:   duration(&c.Broadcasting.ResubmitEvery, time.Second, 24*time.Hour)},
		{name: "resubmit.maxAttempts", def: "20",
			meaning: "after how many sends without a receipt a transaction is STUCK. Lower it to have people decide sooner",
			field:   number(&c.Broadcasting.MaxResubmits, "a number of sends", 1, 1000)},
		{name: "stuck.after", def: "30m",
			meaning: "how long after its first broadcast a transaction without a receipt is STUCK, if its attempts last so long. Raise it on a slow or congested chain",
			field:   duration(&c.Broadcasting.StuckAfter, time.Second, 720*time.Hour)},
	}
}

// finalitySettings are the settings of receipts, finality and the sweep.
func (c *Config) finalitySettings() []setting {
	return []setting{
		{name: "confirmations.required", def: "20",
			meaning: "how many confirming blocks make a transaction final, with `finality.mode=confirmations`. Set it to the depth that your chain's reorgs do not reach",
			field:   number(&c.Finality.Confirmations, "a number of blocks", 0, maxConfirmations)},
		{name: "confirmations.receiptWorkers", def: "100",
			meaning: "how many receipt tasks run at once on each shard of their queue. `terraform/queues.json` creates the queues, so change both: up when receipts are read too late, down for a node with a low rate limit",
			field:   number(&c.Finality.ReceiptWorkers, "a number of tasks", 1, maxQueueConcurrency)},
		{name: "confirmations.staleReceiptTimeout", def: "60s",
			meaning: "how long a tracked transaction may go without a chain query before the sweep enqueues a task for it. Raise it above the time between blocks on a slow chain",
			field:   duration(&c.Finality.StaleReceiptTimeout, time.Second, 24*time.Hour)},
		{name: "finality.mode", def: string(txmanager.ByConfirmations),
			meaning: "the rule that makes a transaction final: a number of confirming blocks, or that its block is at or below the chain's block with this tag. Choose a tag where the chain has one that you trust",
			field:   choice(&c.Finality.Mode, txmanager.ByConfirmations, txmanager.BySafe, txmanager.ByFinalized)},
		{name: "reorg.watchDepth", def: "100",
			meaning: "how many blocks deep final transactions are watched for a reorg that removes them, which opens PROTECT. Lower it on a chain that never reorganises so deeply",
			field:   number(&c.Finality.WatchDepth, "a number of blocks", 1, 100)},
		{name: "sweep.batch", constant: true, def: "500",
			meaning: "how many submitters the sweep takes up at a time",
			field:   number(&c.Sweep.Batch, "a number of submitters", 1, 10_000)},
		{name: "sweep.grace", constant: true, def: "5s",
			meaning: "how long work must be overdue before the sweep enqueues it again; above 1s, since the names of poll tasks have whole seconds",
			field:   duration(&c.Sweep.Grace, 2*time.Second, 10*time.Minute)},
	}
}

// transferSettings are the settings of transfers between ledgers, and payouts.
func (c *Config) transferSettings() []setting {
	return []setting{
		{name: "transfer.initTimeout", def: "15m",
			meaning: "how old a transfer that has not begun may become; older, it is FAILED/EXPIRED. Raise it if users may wait longer for an outage to end",
			field:   duration(&c.Transfer.InitTimeout, time.Second, 24*time.Hour)},
		{name: "transfer.callTimeout", constant: true, def: "5s",
			meaning: "how long one call to a ledger may take; below `transfer.rescueAfter`. A missing answer is unknown, and the ledger is asked again",
			field:   duration(&c.Transfer.CallTimeout, 100*time.Millisecond, time.Minute)},
		{name: "transfer.retryFirst", constant: true, def: "1s",
			meaning: "how long after an unknown answer a ledger is asked again; twice that after the next, up to `transfer.retryMost`",
			field:   duration(&c.Transfer.RetryFirst, 10*time.Millisecond, 30*time.Second)},
		{name: "transfer.retryMost", constant: true, def: "1m",
			meaning: "the longest time between two attempts; of a payout that waits for its chain, 30s at most",
			field:   duration(&c.Transfer.RetryMost, 10*time.Millisecond, time.Hour)},
		{name: "transfer.rescueAfter", constant: true, def: "1m",
			meaning: "how long a transfer without a planned attempt may stay unchanged before the sweep enqueues it",
			field:   duration(&c.Transfer.RescueAfter, time.Second, time.Hour)},
		{name: "transfer.safetyFactor", constant: true, def: "10",
			meaning: "the largest amount is 2^64 units of the asset's precision divided by this factor; larger ones are answered OVERFLOW. An asset with larger amounts needs a lower precision",
			field:   number(&c.Transfer.Terms.SafetyFactor, "a factor", 1, 1_000_000)},
		{name: "transfer.limits.perSecond", def: "0",
			meaning: "how many transfers one user may request in a second, such as 10; 0: no limit; further ones are answered 429 RATE_LIMIT_EXCEEDED",
			field:   number(&c.Transfer.Terms.Limits.PerSecond, "a number of transfers", 0, 10_000)},
		{name: "transfer.limits.perDay", def: "0",
			meaning: "how many transfers one user may request in 24 hours, such as 100; 0: no limit; further ones are answered 429 DAILY_LIMIT_EXCEEDED",
			field:   number(&c.Transfer.Terms.Limits.PerDay, "a number of transfers", 0, 1_000_000)},
		{name: "transfer.unusualPerMinute", def: "60",
			meaning: "the number of transfers of one user in a minute above which the sweep logs a warning. Raise it if your users' programs do more",
			field:   number(&c.Transfer.UnusualPerMinute, "a number of transfers", 1, 1_000_000)},
		{name: "transfer.payoutFinality", constant: true, def: "15m",
			meaning: "how long a payout is expected to take until it is final on its chain. After twice that an alert is raised, but not before twice the time that its blocks take by `finality.mode`, `confirmations.required` and `chain.blockTime`",
			field:   duration(&c.Transfer.PayoutFinality, time.Second, 168*time.Hour)},
		{name: "transfer.payoutMaxGas", def: "300000",
			meaning: "the maximum gas of a payout. Its payer is charged for it, and the recipient's contract can use it. A payout that needs more is refunded as PAYOUT_REJECTED; raise it on chains whose plain transfers need more",
			field:   number(&c.Transfer.PayoutMaxGas, "an amount of gas", 21_000, 1<<24)},
		{name: "transfer.payoutAddresses.required", def: "false",
			meaning: "whether a payout goes only to an address on its user's list (`POST /api/v1/payout_address`); to any other it is 400 ADDRESS_NOT_LISTED. Use it where a stolen token of a user must not move money to a new address",
			field:   boolean(&c.Transfer.Terms.Addresses.Required)},
		{name: "transfer.payoutAddresses.delay", def: "24h",
			meaning: "how long after it was added, or after a restored database was accepted, an address can be paid; until then 400 ADDRESS_NOT_YET_USABLE; 0s: at once",
			field:   duration(&c.Transfer.Terms.Addresses.Delay, 0, 30*24*time.Hour)},
	}
}

// conservationSettings are the settings of the trading core and the check of conservation.
func (c *Config) conservationSettings() []setting {
	return []setting{
		{name: "trading.url",
			meaning: "the trading core's URL; not set: no transfers are offered, and their paths are answered 404",
			field:   origin(&c.Trading.URL)},
		{name: "trading.secret",
			meaning: "the trading core's bearer token; a secret",
			field:   secretText(&c.Trading.Secret, "at least 16 bytes without spaces", func(text string) bool { return len(text) >= 16 && word.MatchString(text) })},
		{name: "conservation.halt", def: string(conservation.HaltAll),
			meaning: "the transfers that a violation of conservation stops until an operator resumes them: all new transfers, or, graded, those of the user and asset, then of the asset, then all. Choose graded where a stop for all costs more than one asset's error",
			field:   choice(&c.Conservation.Halt, conservation.HaltAll, conservation.HaltGraded)},
		{name: "conservation.chainBlocks", def: "1000",
			meaning: "how many blocks conservation asks a node about at once, by `eth_getLogs` too. It compares the payers' payments in final blocks with the transfers. Set it to what the node allows. 0: no chain is read, for chains whose nodes refuse `eth_getLogs`",
			field:   number(&c.Conservation.ChainBlocks, "a number of blocks", 0, 100_000)},
		{name: "conservation.chainHistory", constant: true, def: "24h",
			meaning: "how far back conservation begins to read a payer that it has never read, at most to the payer's registration",
			field:   duration(&c.Conservation.ChainHistory, 0, 10*365*24*time.Hour)},
	}
}

// chainSettings are the settings of nodes and chains.
func (c *Config) chainSettings() []setting {
	return []setting{
		{name: "rpc.urls",
			meaning: "the default chain's nodes, in the order in which they are preferred (docs/nodes.md); a secret, since a URL often holds a key",
			field:   nodeURLs(&c.RPC.URLs)},
		{name: "rpc.quorum", def: "0",
			meaning: "of a chain with several nodes: how many must agree before a transaction ends, a receipt is withdrawn or PROTECT opens. More must agree than disagree. 0: more than half; of two nodes one, if the other does not disagree. Set it when one provider must not decide alone",
			field:   number(&c.RPC.Quorum, "a number of nodes", 0, maxNodes)},
		{name: "rpc.maxLag", def: "5",
			meaning: "of a chain with several nodes: how many blocks one may be behind what a quorum has reached, before it is excluded. Raise it on a chain with short blocks",
			field:   number(&c.RPC.MaxLag, "a number of blocks", 1, 10_000)},
		{name: "rpc.leaveOut", constant: true, def: "30s",
			meaning: "of a chain with several nodes: how long a node is excluded that lags, errs, is contradicted, or answers for another chain; heads are compared as often",
			field:   duration(&c.RPC.LeaveOut, 100*time.Millisecond, time.Hour)},
		{name: "rpc.timeout", def: "10s",
			meaning: "how long one round trip to the node may take; at most `lease.duration`. Lower it where a second node should be asked sooner",
			field:   duration(&c.RPC.Timeout, 100*time.Millisecond, 5*time.Minute)},
		{name: "rpc.maxInFlight", def: "100",
			meaning: "how many round trips to nodes an instance has under way at once, over all nodes of all chains. Lower it for a provider with a low limit",
			field:   number(&c.RPC.MaxInFlight, "a number of round trips", 1, 10_000)},
		{name: "rpc.maxBatch", def: "100",
			meaning: "how many calls one round trip to the node has at most; nodes refuse more than their own limit (Erigon and Bor 100, go-ethereum 1000). Lower it for a provider with a lower one",
			field:   number(&c.RPC.MaxBatch, "a number of calls", 10, 1000)},
		{name: "chain.id", required: true,
			meaning: "the default chain, which a bare address is on",
			field:   number(&c.Chain.ID, "an EIP-155 chain id", 1, maxChainID)},
		{name: "chain.blockTime", def: "12s",
			meaning: "the usual time between two blocks, to plan polls by; correctness does not depend on it",
			field:   duration(&c.Chain.BlockTime, minBlockTime, maxBlockTime)},
		{name: "chain.feeKind", def: string(FeeKindEIP1559),
			meaning: "how the chain prices gas: by base fee and tip, or, legacy, by the one price that `eth_gasPrice` advises",
			field:   choice(&c.Chain.FeeKind, FeeKindEIP1559, FeeKindLegacy)},
		{name: "chain.finalizedTag", def: "true",
			meaning: "whether the chain has the block tag `finalized`. If it is false, a resync out of PROTECT accepts the count that is `confirmations.required` blocks below the head",
			field:   boolean(&c.Chain.FinalizedTag)},
		{name: "chains",
			meaning: "the chains served beside the default one, each with its nodes, as docs/chains.md shows it. An entry with the default chain's id replaces `rpc.urls`. It is a secret, since a URL often holds a key",
			field:   chainList(&c.Chains)},
	}
}

// signerSettings are the settings of signers.
func (c *Config) signerSettings() []setting {
	return []setting{
		{name: "signer.local.keysFile",
			meaning: "the file with the private keys of the local signer, mounted from a secret",
			field:   text(&c.Signer.LocalKeysFile, "a path", path)},
		{name: "signer.local.keystore",
			meaning: "a folder of go-ethereum's encrypted key files, for accounts of the default chain; all are opened when the process starts",
			field:   text(&c.Signer.LocalKeystore, "a path", path)},
		{name: "signer.local.passwordFile",
			meaning: "the file whose first line is the password of `signer.local.keystore`, mounted from a secret",
			field:   text(&c.Signer.LocalPasswordFile, "a path", path)},
		{name: "signer.kms.endpoint",
			meaning: "a Cloud KMS other than Google's, reached without TLS and without credentials: the emulator's",
			field:   ownPort(&c.Signer.KMSEndpoint)},
		{name: "signer.remotesFile",
			meaning: "the list of remote signers by name, mounted from a secret, as docs/runbooks/signing-service.md shows it",
			field:   text(&c.Signer.RemotesFile, "a path", path)},
		{name: "signer.timeout", def: "5s",
			meaning: "how long one signature may take; a missing answer is unknown, and the signature is requested again. The lease bounds it too. Raise it for a slow signing service",
			field:   duration(&c.Signer.Timeout, 100*time.Millisecond, 5*time.Minute)},
		{name: "signer.parallel", def: "8",
			meaning: "how many signatures of one submitter's window are requested at once; a remote signer gets one request at a time. Lower it when Cloud KMS reports that its quota is used up",
			field:   number(&c.Signer.Parallel, "a number of signatures", 1, 100)},
	}
}
