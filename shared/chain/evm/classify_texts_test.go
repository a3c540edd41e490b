package evm

import "github.com/fencepost/fencepost/shared/nonce"

// The sources of the texts: repository, version or commit, file. Texts with numbers are those formats
// with values.
const (
	gethPool   = "ethereum/go-ethereum v1.17.10 core/txpool/errors.go, validation.go"
	gethLegacy = "ethereum/go-ethereum v1.17.10 core/txpool/legacypool/legacypool.go"
	gethBlob   = "ethereum/go-ethereum v1.17.10 core/txpool/blobpool/blobpool.go"
	gethCore   = "ethereum/go-ethereum v1.17.10 core/error.go, core/txpool/validation.go"
	gethState  = "ethereum/go-ethereum v1.17.10 core/error.go, core/state_transition.go"
	gethVM     = "ethereum/go-ethereum v1.17.10 core/vm/errors.go, common.go"
	gethTypes  = "ethereum/go-ethereum v1.17.10 core/types/transaction.go, transaction_signing.go, after core/txpool/validation.go's \"invalid sender\""
	gethBytes  = "ethereum/go-ethereum v1.17.10 core/types/transaction.go, rlp/decode.go"
	gethAPI    = "ethereum/go-ethereum v1.17.10 internal/ethapi/api.go"

	// The text after a comma is the message of the filter that refuses.
	neth       = "NethermindEth/nethermind 030cbd1 src/Nethermind/Nethermind.TxPool/TxPoolErrorMessages.cs, by AcceptTxResult.cs"
	nethFilter = "NethermindEth/nethermind src/Nethermind/Nethermind.TxPool/Filters (LowNonce, FeeTooLow, BalanceTooLow), by AcceptTxResult.ToString"
	nethForm   = "NethermindEth/nethermind 0c816d5 src/Nethermind/Nethermind.Core/Messages/TxErrorMessages.cs, by Filters/MalformedTxFilter.cs"
	nethRLP    = "NethermindEth/nethermind src/Nethermind/Nethermind.JsonRpc/Modules/Eth/EthRpcModule.cs"
	nethOld    = "Nethermind before 2026: smartcontractkit/chainlink 021d440 core/chains/evm/client/errors.go"

	// The reason follows the name of an ImportResult, chosen in
	// txnprovider/txpool/txpool_grpc_server.go (0958eb3), prefixed in rpc/jsonrpc/send_transaction.go
	// (00769ff).
	erigon      = "erigontech/erigon 05916db txnprovider/txpool/txpoolcfg/txpoolcfg.go"
	erigonOld   = "erigontech/erigon 06ccbb3 erigon-lib/txpool/txpoolcfg/txpoolcfg.go"
	erigonParse = "erigontech/erigon 2026 txnprovider/txpool/pool_txn_parser.go"
	erigonAPI   = "erigontech/erigon 00769ff rpc/jsonrpc/send_transaction.go"
	erigonOff   = "erigontech/erigon 0958eb3 txnprovider/txpool/txpool_grpc_server.go"

	besu     = "hyperledger/besu 3fd224e ethereum/api/src/main/java/org/hyperledger/besu/ethereum/api/jsonrpc/internal/response/RpcErrorType.java"
	besuLong = "hyperledger/besu 3fd224e …/jsonrpc/internal/response/JsonRpcError.java, with ethereum/core/…/mainnet/MainnetTransactionValidator.java"

	reth     = "paradigmxyz/reth 7b3432d crates/rpc/rpc-eth-types/src/error/mod.rs"
	rethPool = "paradigmxyz/reth 7b3432d crates/transaction-pool/src/error.rs, where that file does not reword it"

	anvil     = "foundry-rs/foundry v1.7.1 crates/anvil/src/eth/error.rs"
	anvilPool = "foundry-rs/foundry v1.7.1 crates/anvil/src/eth/error.rs, backend/mem/mod.rs"
	alloy     = "alloy-rs/alloy e1c4123 crates/consensus/src/crypto.rs, as anvil answers it"
)

var sendTexts = []struct {
	source, text string
	want         nonce.SendClass
}{
	{gethPool, "already known", nonce.SendAlreadyKnown},
	{neth, "already known", nonce.SendAlreadyKnown},
	{nethOld, "AlreadyKnown", nonce.SendAlreadyKnown},
	{erigon, "ALREADY_EXISTS: already known", nonce.SendAlreadyKnown},
	{erigon, "INTERNAL_ERROR: existing txn with same hash", nonce.SendAlreadyKnown},
	{erigonOld, "INTERNAL_ERROR: existing tx with same hash", nonce.SendAlreadyKnown},
	{besu, "Known transaction", nonce.SendAlreadyKnown},
	{reth, "already known", nonce.SendAlreadyKnown},
	{rethPool, "[0x3d5a9f]: already imported", nonce.SendAlreadyKnown},
	{anvil, "transaction already imported", nonce.SendAlreadyKnown},

	{gethCore, "nonce too low: next nonce 1, tx nonce 0", nonce.SendNonceTooLow},
	{neth, "nonce too low", nonce.SendNonceTooLow},
	{nethFilter, "nonce too low, Current nonce: 22, nonce of rejected tx: 17", nonce.SendNonceTooLow},
	{nethOld, "OldNonce, Current nonce: 22, nonce of rejected tx: 17", nonce.SendNonceTooLow},
	{erigon, "INTERNAL_ERROR: nonce too low", nonce.SendNonceTooLow},
	{besu, "Nonce too low", nonce.SendNonceTooLow},
	{reth, "nonce too low: next nonce 5, tx nonce 4", nonce.SendNonceTooLow},
	{anvil, "nonce too low", nonce.SendNonceTooLow},

	{gethCore, "nonce too high: tx nonce 9, gapped nonce 3", nonce.SendNonceTooHigh},
	{gethLegacy, "gapped-nonce tx from delegated accounts", nonce.SendNonceTooHigh},
	{neth, "nonce too high", nonce.SendNonceTooHigh},
	{neth, "nonce too far in future", nonce.SendNonceTooHigh},
	{neth, "delegation nonce gap", nonce.SendNonceTooHigh},
	{nethOld, "NonceGap, Future nonce. Expected nonce: 10", nonce.SendNonceTooHigh},
	{besu, "Nonce too high", nonce.SendNonceTooHigh},
	{besu, "Transaction nonce is too distant from current sender nonce", nonce.SendNonceTooHigh},
	{reth, "nonce too high", nonce.SendNonceTooHigh},
	{rethPool, "gapped-nonce tx from delegated accounts", nonce.SendNonceTooHigh},
	{anvil, "Nonce too high", nonce.SendNonceTooHigh},

	{gethPool, "replacement transaction underpriced", nonce.SendUnderpriced},
	{gethBlob, "replacement transaction underpriced: new tx gas fee cap 1 <= 2 queued", nonce.SendUnderpriced},
	{neth, "replacement transaction underpriced", nonce.SendUnderpriced},
	{nethOld, "ReplacementNotAllowed", nonce.SendUnderpriced},
	{erigon, "FEE_TOO_LOW: replacement transaction underpriced", nonce.SendUnderpriced},
	{erigon, "INTERNAL_ERROR: could not replace existing tx", nonce.SendUnderpriced},
	{erigon, "INTERNAL_ERROR: replaced by transaction with higher tip", nonce.SendUnderpriced},
	{besu, "Replacement transaction underpriced", nonce.SendUnderpriced},
	{reth, "replacement transaction underpriced", nonce.SendUnderpriced},
	{rethPool, "[0x3d5a9f]: insufficient gas price to replace existing transaction", nonce.SendUnderpriced},
	{anvil, "replacement transaction underpriced", nonce.SendUnderpriced},

	{gethPool, "transaction underpriced", nonce.SendFeeTooLow},
	{gethPool, "transaction gas price below minimum: gas tip cap 0, minimum needed 1", nonce.SendFeeTooLow},
	{gethState, "max fee per gas less than block base fee: address 0xfe, maxFeePerGas: 1, baseFee: 2", nonce.SendFeeTooLow},
	{neth, "transaction underpriced", nonce.SendFeeTooLow},
	{nethFilter, "transaction underpriced, FeePerGas needs to be higher than 5 to be added to the TxPool. Affordable FeePerGas of rejected tx: 4.", nonce.SendFeeTooLow},
	{nethOld, "FeeTooLow", nonce.SendFeeTooLow},
	{nethOld, "FeeTooLow, EffectivePriorityFeePerGas too low 10 < 20, BaseFee: 30", nonce.SendFeeTooLow},
	{nethOld, "FeeTooLowToCompete", nonce.SendFeeTooLow},
	{erigon, "FEE_TOO_LOW: underpriced", nonce.SendFeeTooLow},
	{erigon, "FEE_TOO_LOW: fee too low", nonce.SendFeeTooLow},
	{besu, "Gas price below configured minimum gas price", nonce.SendFeeTooLow},
	{besu, "Gas price below current base fee", nonce.SendFeeTooLow},
	{reth, "transaction underpriced", nonce.SendFeeTooLow},
	{reth, "max fee per gas less than block base fee", nonce.SendFeeTooLow},
	{reth, "transaction priority fee below minimum required priority fee 1000000", nonce.SendFeeTooLow},
	{anvil, "max fee per gas less than block base fee", nonce.SendFeeTooLow},

	{gethCore, "insufficient funds for gas * price + value: balance 0, tx cost 1, overshot 1", nonce.SendInsufficientFunds},
	{gethCore, "insufficient funds for gas * price + value: balance 1, queued cost 1, tx cost 1, overshot 1", nonce.SendInsufficientFunds},
	{gethState, "insufficient funds for transfer: address 0xfe", nonce.SendInsufficientFunds},
	{neth, "insufficient funds for gas * price + value", nonce.SendInsufficientFunds},
	{nethFilter, "insufficient funds for gas * price + value, Account balance: 4, cumulative cost: 5", nonce.SendInsufficientFunds},
	{nethOld, "InsufficientFunds, Balance is 4 less than sending value + gas 5", nonce.SendInsufficientFunds},
	{nethOld, "InsufficientFunds, Account balance: 4, cumulative cost: 5", nonce.SendInsufficientFunds},
	{erigon, "INTERNAL_ERROR: insufficient funds", nonce.SendInsufficientFunds},
	{besu, "Upfront cost exceeds account balance", nonce.SendInsufficientFunds},
	{besuLong, "Upfront cost exceeds account balance (transaction up-front cost 0x7 exceeds transaction sender account balance 0x0 for sender 0xfe)", nonce.SendInsufficientFunds},
	{reth, "insufficient funds for gas * price + value: have 0 want 1", nonce.SendInsufficientFunds},
	{reth, "insufficient funds for transfer", nonce.SendInsufficientFunds},
	{rethPool, "[0x3d5a9f]: transaction overdraws from account, balance: 4, cost: 5", nonce.SendInsufficientFunds},
	{anvil, "insufficient funds for transfer", nonce.SendInsufficientFunds},
	{anvil, "Insufficient funds for gas * price + value", nonce.SendInsufficientFunds},

	{gethLegacy, "txpool is full", nonce.SendPoolFull},
	{gethPool, "out of capacity", nonce.SendPoolFull},
	{gethPool, "account limit exceeded: pooled 16 txs", nonce.SendPoolFull},
	{gethLegacy, "future transaction tries to replace pending", nonce.SendPoolFull},
	{gethPool, "in-flight transaction limit reached for delegated accounts", nonce.SendPoolFull},
	{neth, "delegation authority has pending transaction", nonce.SendPoolFull},
	{erigon, "INTERNAL_ERROR: pending sub-pool is full", nonce.SendPoolFull},
	{erigon, "INTERNAL_ERROR: baseFee sub-pool is full", nonce.SendPoolFull},
	{erigon, "INTERNAL_ERROR: queued sub-pool is full", nonce.SendPoolFull},
	{erigon, "INTERNAL_ERROR: spammer", nonce.SendPoolFull},
	{reth, "txpool is full", nonce.SendPoolFull},
	{rethPool, "in-flight transaction limit reached for delegated accounts", nonce.SendPoolFull},

	{gethTypes, "invalid sender: invalid transaction v, r, s values", nonce.SendInvalid},
	{gethCore, "intrinsic gas too low: gas 20000, minimum needed 21000", nonce.SendInvalid},
	{gethCore, "insufficient gas for floor data gas cost: gas 21000, minimum needed 40000", nonce.SendInvalid},
	{gethCore, "max priority fee per gas higher than max fee per gas", nonce.SendInvalid},
	{gethCore, "max priority fee per gas higher than 2^256-1", nonce.SendInvalid},
	{gethCore, "max fee per gas higher than 2^256-1", nonce.SendInvalid},
	{gethCore, "nonce has max value", nonce.SendInvalid},
	{gethCore, "gas uint64 overflow", nonce.SendInvalid},
	{gethPool, "negative value", nonce.SendInvalid},
	{gethVM, "max initcode size exceeded: code size 49153 limit 49152", nonce.SendInvalid},
	{gethCore, "transaction gas limit too high (cap: 16777216, tx: 16777217)", nonce.SendInvalid},
	{gethBytes, "rlp: value size exceeds available input length", nonce.SendInvalid},
	{gethBytes, "typed transaction too short", nonce.SendInvalid},
	{neth, "failed to recover sender", nonce.SendInvalid},
	{nethForm, "transaction invalid, intrinsic gas too low", nonce.SendInvalid},
	{nethForm, "transaction invalid, max initcode size exceeded", nonce.SendInvalid},
	{nethForm, "transaction invalid, InvalidTxSignature: Signature is invalid.", nonce.SendInvalid},
	{nethForm, "transaction invalid, InvalidMaxPriorityFeePerGas: Cannot be higher than maxFeePerGas.", nonce.SendInvalid},
	{nethOld, "FailedToResolveSender", nonce.SendInvalid},
	{erigon, "INVALID: invalid sender", nonce.SendInvalid},
	{erigon, "INVALID: negative value", nonce.SendInvalid},
	{erigon, "INTERNAL_ERROR: GasUintOverflow", nonce.SendInvalid},
	{erigon, "INTERNAL_ERROR: IntrinsicGas", nonce.SendInvalid},
	{erigon, "INVALID: initcode too large", nonce.SendInvalid},
	{besu, "Invalid signature", nonce.SendInvalid},
	{besu, "Intrinsic gas exceeds gas limit", nonce.SendInvalid},
	{besu, "Max priority fee per gas exceeds max fee per gas", nonce.SendInvalid},
	{reth, "invalid transaction signature", nonce.SendInvalid},
	{reth, "failed to decode signed transaction", nonce.SendInvalid},
	{reth, "empty transaction data", nonce.SendInvalid},
	{reth, "invalid sender", nonce.SendInvalid},
	{reth, "negative value", nonce.SendInvalid},
	{reth, "intrinsic gas too low", nonce.SendInvalid},
	{reth, "gas uint64 overflow", nonce.SendInvalid},
	{reth, "nonce has max value", nonce.SendInvalid},
	{reth, "max initcode size exceeded", nonce.SendInvalid},
	{reth, "max priority fee per gas higher than max fee per gas", nonce.SendInvalid},
	{reth, "max priority fee per gas higher than 2^256-1", nonce.SendInvalid},
	{reth, "max fee per gas higher than 2^256-1", nonce.SendInvalid},
	{anvil, "Failed to decode transaction", nonce.SendInvalid},
	{anvil, "Empty transaction data", nonce.SendInvalid},
	{alloy, "Failed to recover the signer", nonce.SendInvalid},
	{anvil, "max priority fee per gas higher than max fee per gas", nonce.SendInvalid},
	{anvil, "max initcode size exceeded", nonce.SendInvalid},
	{anvil, "intrinsic gas too low", nonce.SendInvalid},
	{anvil, "nonce has max value", nonce.SendInvalid},
	{anvil, "gas uint64 overflow", nonce.SendInvalid},

	// Texts about the node, its limits or the moment.
	{gethTypes, "invalid sender: invalid chain id for signer: have 1 want 2", nonce.SendUnknown},
	{gethAPI, "tx fee (1.50 ether) exceeds the configured cap (1.00 ether)", nonce.SendOverNodeCap},
	{gethAPI, "only replay-protected (EIP-155) transactions allowed over RPC", nonce.SendUnknown},
	{gethPool, "exceeds block gas limit", nonce.SendUnknown},
	{gethPool, "oversized data: transaction size 131073, limit 131072", nonce.SendUnknown},
	{gethBytes, "transaction type not supported", nonce.SendUnknown},
	{gethCore, "transaction type not supported: tx type 3 not supported by this pool", nonce.SendUnknown},
	{gethState, "sender not an eoa: address 0xfe, len(code): 23", nonce.SendUnknown},
	{gethLegacy, "authority already reserved", nonce.SendUnknown},
	{gethPool, "address already reserved", nonce.SendUnknown},
	{neth, "transaction invalid", nonce.SendUnknown},
	{neth, "node is syncing", nonce.SendUnknown},
	{neth, "gas limit reached", nonce.SendUnknown},
	{neth, "sender not an eoa", nonce.SendUnknown},
	{neth, "transaction cost overflow", nonce.SendUnknown},
	{neth, "pending transaction type conflict", nonce.SendUnknown},
	{neth, "unsupported transaction type", nonce.SendUnknown},
	{neth, "transaction too large", nonce.SendUnknown},
	{nethForm, "transaction invalid, InvalidTxChainId: Expected 1, got 2.", nonce.SendUnknown},
	{nethForm, "transaction invalid, InvalidTxType: Transaction type in Istanbul is not supported.", nonce.SendUnknown},
	{nethForm, "transaction invalid, TxGasLimitCapExceeded: Gas limit 2 exceeded cap of 1.", nonce.SendUnknown},
	{nethForm, "transaction invalid, NonceTooHigh: Nonce exceeds max nonce", nonce.SendUnknown},
	{nethRLP, "Invalid RLP.", nonce.SendUnknown},
	{nethOld, "OwnNonceAlreadyUsed", nonce.SendUnknown},
	{nethOld, "Invalid, transaction Hash is null", nonce.SendUnknown},
	{nethOld, "GasLimitExceeded, Gas limit: 1, gas limit of rejected tx: 2", nonce.SendUnknown},
	{erigon, "INTERNAL_ERROR: mined", nonce.SendUnknown},
	{erigon, "INVALID: oversized data", nonce.SendUnknown},
	{erigon, "INVALID: RLPTooLong", nonce.SendUnknown},
	{erigon, "INVALID: fork supporting this transaction type is not activated yet", nonce.SendUnknown},
	{erigon, "INTERNAL_ERROR: gas limit is too high", nonce.SendUnknown},
	{erigon, "INTERNAL_ERROR: EIP-7702 transaction with authority already reserved", nonce.SendUnknown},
	{erigonParse, "INTERNAL_ERROR: rlp parse transaction: recovering sender from signature: invalid transaction v, r, s values", nonce.SendUnknown},
	{erigonParse, "INTERNAL_ERROR: rlp parse transaction: invalid chainID, 5 (expected 1)", nonce.SendUnknown},
	{erigonAPI, "invalid chain id, expected: 1 got: 2", nonce.SendUnknown},
	{erigonAPI, "tx fee (1.50 ether) exceeds the configured cap (1.00 ether)", nonce.SendOverNodeCap},
	{erigonOff, "TxPool Disabled", nonce.SendUnknown},
	{besu, "Wrong chainId", nonce.SendUnknown},
	{besu, "Transaction pool not enabled. (Either txpool explicitly disabled, or node not yet in sync).", nonce.SendUnknown},
	{besu, "An invalid transaction with a lower nonce exists", nonce.SendUnknown},
	{besu, "Invalid block param (block not found)", nonce.SendUnknown}, // its answer to bytes that are not a transaction
	{besu, "Invalid params", nonce.SendUnknown},
	{besu, "Invalid transaction type", nonce.SendUnknown},
	{besu, "Internal error", nonce.SendUnknown},
	{besu, "Transaction gas limit exceeds block gas limit", nonce.SendUnknown},
	{besu, "Transaction gas limit cap exceeded", nonce.SendUnknown},
	{besu, "Transaction fee cap exceeded", nonce.SendOverNodeCap},
	{besu, "Sender account not authorized to send transactions", nonce.SendUnknown},
	{besu, "Initial sync is still in progress", nonce.SendUnknown},
	{besu, "ChainId not supported", nonce.SendUnknown},
	{besu, "Plugin has marked the transaction as not acceptable by the transaction pool", nonce.SendUnknown},
	{reth, "invalid chain ID", nonce.SendUnknown},
	{reth, "exceeds block gas limit", nonce.SendUnknown},
	{reth, "exceeds max transaction gas limit", nonce.SendUnknown},
	{reth, "gas limit too high", nonce.SendUnknown},
	{reth, "intrinsic gas too high", nonce.SendUnknown},
	{reth, "tx fee (2 wei) exceeds the configured cap (1 wei)", nonce.SendOverNodeCap},
	{reth, "oversized data: transaction size 131073, limit 131072", nonce.SendUnknown},
	{reth, "transaction type not supported", nonce.SendUnknown},
	{reth, "sender is not an EOA", nonce.SendUnknown},
	{reth, "address already reserved", nonce.SendUnknown},
	{reth, "Batch transaction sender channel closed", nonce.SendUnknown},
	{rethPool, "authority already reserved", nonce.SendUnknown},
	{anvil, "invalid chain id for signer", nonce.SendUnknown},
	{anvilPool, "intrinsic gas too high -- tx.gas_limit > env.block.gas_limit", nonce.SendUnknown},
	{anvilPool, "intrinsic gas too high -- tx.gas_limit > env.cfg.tx_gas_limit_cap", nonce.SendUnknown},
	{anvil, "intrinsic gas too high -- CallGasCostMoreThanGasLimit", nonce.SendUnknown},
	{anvil, "Transaction gas limit is greater than the block gas limit, gas_limit: 2, cap: 1", nonce.SendUnknown},
	{anvil, "sender not an eoa", nonce.SendUnknown},
	{anvil, "Cyclic transaction detected", nonce.SendUnknown},
	{anvil, "Incompatible EIP-155 transaction, signed for another chain", nonce.SendUnknown},
	{anvil, "Unknown transaction type not supported", nonce.SendUnknown},
	{"made up: a phrase inside others", "unknown transaction", nonce.SendUnknown},
	{"made up: a phrase inside others", "not already known", nonce.SendUnknown},
	{"made up: a phrase that goes on", "already known to be invalid", nonce.SendUnknown},
	{"made up: a reason that is not the first", "transaction is not invalid, intrinsic gas too low", nonce.SendUnknown},
	{"made up", "", nonce.SendUnknown},
	{"JSON-RPC clients", "response batch did not contain a response to this call", nonce.SendUnknown},
}
