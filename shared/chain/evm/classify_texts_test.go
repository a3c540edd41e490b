package evm

import "github.com/fencepost/fencepost/shared/txmanager"

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
	want         txmanager.SendClass
}{
	{gethPool, "already known", txmanager.SendAlreadyKnown},
	{neth, "already known", txmanager.SendAlreadyKnown},
	{nethOld, "AlreadyKnown", txmanager.SendAlreadyKnown},
	{erigon, "ALREADY_EXISTS: already known", txmanager.SendAlreadyKnown},
	{erigon, "INTERNAL_ERROR: existing txn with same hash", txmanager.SendAlreadyKnown},
	{erigonOld, "INTERNAL_ERROR: existing tx with same hash", txmanager.SendAlreadyKnown},
	{besu, "Known transaction", txmanager.SendAlreadyKnown},
	{reth, "already known", txmanager.SendAlreadyKnown},
	{rethPool, "[0x3d5a9f]: already imported", txmanager.SendAlreadyKnown},
	{anvil, "transaction already imported", txmanager.SendAlreadyKnown},

	{gethCore, "nonce too low: next nonce 1, tx nonce 0", txmanager.SendNonceTooLow},
	{neth, "nonce too low", txmanager.SendNonceTooLow},
	{nethFilter, "nonce too low, Current nonce: 22, nonce of rejected tx: 17", txmanager.SendNonceTooLow},
	{nethOld, "OldNonce, Current nonce: 22, nonce of rejected tx: 17", txmanager.SendNonceTooLow},
	{erigon, "INTERNAL_ERROR: nonce too low", txmanager.SendNonceTooLow},
	{besu, "Nonce too low", txmanager.SendNonceTooLow},
	{reth, "nonce too low: next nonce 5, tx nonce 4", txmanager.SendNonceTooLow},
	{anvil, "nonce too low", txmanager.SendNonceTooLow},

	{gethCore, "nonce too high: tx nonce 9, gapped nonce 3", txmanager.SendNonceTooHigh},
	{gethLegacy, "gapped-nonce tx from delegated accounts", txmanager.SendNonceTooHigh},
	{neth, "nonce too high", txmanager.SendNonceTooHigh},
	{neth, "nonce too far in future", txmanager.SendNonceTooHigh},
	{neth, "delegation nonce gap", txmanager.SendNonceTooHigh},
	{nethOld, "NonceGap, Future nonce. Expected nonce: 10", txmanager.SendNonceTooHigh},
	{besu, "Nonce too high", txmanager.SendNonceTooHigh},
	{besu, "Transaction nonce is too distant from current sender nonce", txmanager.SendNonceTooHigh},
	{reth, "nonce too high", txmanager.SendNonceTooHigh},
	{rethPool, "gapped-nonce tx from delegated accounts", txmanager.SendNonceTooHigh},
	{anvil, "Nonce too high", txmanager.SendNonceTooHigh},

	{gethPool, "replacement transaction underpriced", txmanager.SendUnderpriced},
	{gethBlob, "replacement transaction underpriced: new tx gas fee cap 1 <= 2 queued", txmanager.SendUnderpriced},
	{neth, "replacement transaction underpriced", txmanager.SendUnderpriced},
	{nethOld, "ReplacementNotAllowed", txmanager.SendUnderpriced},
	{erigon, "FEE_TOO_LOW: replacement transaction underpriced", txmanager.SendUnderpriced},
	{erigon, "INTERNAL_ERROR: could not replace existing tx", txmanager.SendUnderpriced},
	{erigon, "INTERNAL_ERROR: replaced by transaction with higher tip", txmanager.SendUnderpriced},
	{besu, "Replacement transaction underpriced", txmanager.SendUnderpriced},
	{reth, "replacement transaction underpriced", txmanager.SendUnderpriced},
	{rethPool, "[0x3d5a9f]: insufficient gas price to replace existing transaction", txmanager.SendUnderpriced},
	{anvil, "replacement transaction underpriced", txmanager.SendUnderpriced},

	{gethPool, "transaction underpriced", txmanager.SendFeeTooLow},
	{gethPool, "transaction gas price below minimum: gas tip cap 0, minimum needed 1", txmanager.SendFeeTooLow},
	{gethState, "max fee per gas less than block base fee: address 0xfe, maxFeePerGas: 1, baseFee: 2", txmanager.SendFeeTooLow},
	{neth, "transaction underpriced", txmanager.SendFeeTooLow},
	{nethFilter, "transaction underpriced, FeePerGas needs to be higher than 5 to be added to the TxPool. Affordable FeePerGas of rejected tx: 4.", txmanager.SendFeeTooLow},
	{nethOld, "FeeTooLow", txmanager.SendFeeTooLow},
	{nethOld, "FeeTooLow, EffectivePriorityFeePerGas too low 10 < 20, BaseFee: 30", txmanager.SendFeeTooLow},
	{nethOld, "FeeTooLowToCompete", txmanager.SendFeeTooLow},
	{erigon, "FEE_TOO_LOW: underpriced", txmanager.SendFeeTooLow},
	{erigon, "FEE_TOO_LOW: fee too low", txmanager.SendFeeTooLow},
	{besu, "Gas price below configured minimum gas price", txmanager.SendFeeTooLow},
	{besu, "Gas price below current base fee", txmanager.SendFeeTooLow},
	{reth, "transaction underpriced", txmanager.SendFeeTooLow},
	{reth, "max fee per gas less than block base fee", txmanager.SendFeeTooLow},
	{reth, "transaction priority fee below minimum required priority fee 1000000", txmanager.SendFeeTooLow},
	{anvil, "max fee per gas less than block base fee", txmanager.SendFeeTooLow},

	{gethCore, "insufficient funds for gas * price + value: balance 0, tx cost 1, overshot 1", txmanager.SendInsufficientFunds},
	{gethCore, "insufficient funds for gas * price + value: balance 1, queued cost 1, tx cost 1, overshot 1", txmanager.SendInsufficientFunds},
	{gethState, "insufficient funds for transfer: address 0xfe", txmanager.SendInsufficientFunds},
	{neth, "insufficient funds for gas * price + value", txmanager.SendInsufficientFunds},
	{nethFilter, "insufficient funds for gas * price + value, Account balance: 4, cumulative cost: 5", txmanager.SendInsufficientFunds},
	{nethOld, "InsufficientFunds, Balance is 4 less than sending value + gas 5", txmanager.SendInsufficientFunds},
	{nethOld, "InsufficientFunds, Account balance: 4, cumulative cost: 5", txmanager.SendInsufficientFunds},
	{erigon, "INTERNAL_ERROR: insufficient funds", txmanager.SendInsufficientFunds},
	{besu, "Upfront cost exceeds account balance", txmanager.SendInsufficientFunds},
	{besuLong, "Upfront cost exceeds account balance (transaction up-front cost 0x7 exceeds transaction sender account balance 0x0 for sender 0xfe)", txmanager.SendInsufficientFunds},
	{reth, "insufficient funds for gas * price + value: have 0 want 1", txmanager.SendInsufficientFunds},
	{reth, "insufficient funds for transfer", txmanager.SendInsufficientFunds},
	{rethPool, "[0x3d5a9f]: transaction overdraws from account, balance: 4, cost: 5", txmanager.SendInsufficientFunds},
	{anvil, "insufficient funds for transfer", txmanager.SendInsufficientFunds},
	{anvil, "Insufficient funds for gas * price + value", txmanager.SendInsufficientFunds},

	{gethLegacy, "txpool is full", txmanager.SendPoolFull},
	{gethPool, "out of capacity", txmanager.SendPoolFull},
	{gethPool, "account limit exceeded: pooled 16 txs", txmanager.SendPoolFull},
	{gethLegacy, "future transaction tries to replace pending", txmanager.SendPoolFull},
	{gethPool, "in-flight transaction limit reached for delegated accounts", txmanager.SendPoolFull},
	{neth, "delegation authority has pending transaction", txmanager.SendPoolFull},
	{erigon, "INTERNAL_ERROR: pending sub-pool is full", txmanager.SendPoolFull},
	{erigon, "INTERNAL_ERROR: baseFee sub-pool is full", txmanager.SendPoolFull},
	{erigon, "INTERNAL_ERROR: queued sub-pool is full", txmanager.SendPoolFull},
	{erigon, "INTERNAL_ERROR: spammer", txmanager.SendPoolFull},
	{reth, "txpool is full", txmanager.SendPoolFull},
	{rethPool, "in-flight transaction limit reached for delegated accounts", txmanager.SendPoolFull},

	{gethTypes, "invalid sender: invalid transaction v, r, s values", txmanager.SendInvalid},
	{gethCore, "intrinsic gas too low: gas 20000, minimum needed 21000", txmanager.SendInvalid},
	{gethCore, "insufficient gas for floor data gas cost: gas 21000, minimum needed 40000", txmanager.SendInvalid},
	{gethCore, "max priority fee per gas higher than max fee per gas", txmanager.SendInvalid},
	{gethCore, "max priority fee per gas higher than 2^256-1", txmanager.SendInvalid},
	{gethCore, "max fee per gas higher than 2^256-1", txmanager.SendInvalid},
	{gethCore, "nonce has max value", txmanager.SendInvalid},
	{gethCore, "gas uint64 overflow", txmanager.SendInvalid},
	{gethPool, "negative value", txmanager.SendInvalid},
	{gethVM, "max initcode size exceeded: code size 49153 limit 49152", txmanager.SendInvalid},
	{gethCore, "transaction gas limit too high (cap: 16777216, tx: 16777217)", txmanager.SendInvalid},
	{gethBytes, "rlp: value size exceeds available input length", txmanager.SendInvalid},
	{gethBytes, "typed transaction too short", txmanager.SendInvalid},
	{neth, "failed to recover sender", txmanager.SendInvalid},
	{nethForm, "transaction invalid, intrinsic gas too low", txmanager.SendInvalid},
	{nethForm, "transaction invalid, max initcode size exceeded", txmanager.SendInvalid},
	{nethForm, "transaction invalid, InvalidTxSignature: Signature is invalid.", txmanager.SendInvalid},
	{nethForm, "transaction invalid, InvalidMaxPriorityFeePerGas: Cannot be higher than maxFeePerGas.", txmanager.SendInvalid},
	{nethOld, "FailedToResolveSender", txmanager.SendInvalid},
	{erigon, "INVALID: invalid sender", txmanager.SendInvalid},
	{erigon, "INVALID: negative value", txmanager.SendInvalid},
	{erigon, "INTERNAL_ERROR: GasUintOverflow", txmanager.SendInvalid},
	{erigon, "INTERNAL_ERROR: IntrinsicGas", txmanager.SendInvalid},
	{erigon, "INVALID: initcode too large", txmanager.SendInvalid},
	{besu, "Invalid signature", txmanager.SendInvalid},
	{besu, "Intrinsic gas exceeds gas limit", txmanager.SendInvalid},
	{besu, "Max priority fee per gas exceeds max fee per gas", txmanager.SendInvalid},
	{reth, "invalid transaction signature", txmanager.SendInvalid},
	{reth, "failed to decode signed transaction", txmanager.SendInvalid},
	{reth, "empty transaction data", txmanager.SendInvalid},
	{reth, "invalid sender", txmanager.SendInvalid},
	{reth, "negative value", txmanager.SendInvalid},
	{reth, "intrinsic gas too low", txmanager.SendInvalid},
	{reth, "gas uint64 overflow", txmanager.SendInvalid},
	{reth, "nonce has max value", txmanager.SendInvalid},
	{reth, "max initcode size exceeded", txmanager.SendInvalid},
	{reth, "max priority fee per gas higher than max fee per gas", txmanager.SendInvalid},
	{reth, "max priority fee per gas higher than 2^256-1", txmanager.SendInvalid},
	{reth, "max fee per gas higher than 2^256-1", txmanager.SendInvalid},
	{anvil, "Failed to decode transaction", txmanager.SendInvalid},
	{anvil, "Empty transaction data", txmanager.SendInvalid},
	{alloy, "Failed to recover the signer", txmanager.SendInvalid},
	{anvil, "max priority fee per gas higher than max fee per gas", txmanager.SendInvalid},
	{anvil, "max initcode size exceeded", txmanager.SendInvalid},
	{anvil, "intrinsic gas too low", txmanager.SendInvalid},
	{anvil, "nonce has max value", txmanager.SendInvalid},
	{anvil, "gas uint64 overflow", txmanager.SendInvalid},

	// Texts about the node, its limits or the moment.
	{gethTypes, "invalid sender: invalid chain id for signer: have 1 want 2", txmanager.SendUnknown},
	{gethAPI, "tx fee (1.50 ether) exceeds the configured cap (1.00 ether)", txmanager.SendOverNodeCap},
	{gethAPI, "only replay-protected (EIP-155) transactions allowed over RPC", txmanager.SendUnknown},
	{gethPool, "exceeds block gas limit", txmanager.SendUnknown},
	{gethPool, "oversized data: transaction size 131073, limit 131072", txmanager.SendUnknown},
	{gethBytes, "transaction type not supported", txmanager.SendUnknown},
	{gethCore, "transaction type not supported: tx type 3 not supported by this pool", txmanager.SendUnknown},
	{gethState, "sender not an eoa: address 0xfe, len(code): 23", txmanager.SendUnknown},
	{gethLegacy, "authority already reserved", txmanager.SendUnknown},
	{gethPool, "address already reserved", txmanager.SendUnknown},
	{neth, "transaction invalid", txmanager.SendUnknown},
	{neth, "node is syncing", txmanager.SendUnknown},
	{neth, "gas limit reached", txmanager.SendUnknown},
	{neth, "sender not an eoa", txmanager.SendUnknown},
	{neth, "transaction cost overflow", txmanager.SendUnknown},
	{neth, "pending transaction type conflict", txmanager.SendUnknown},
	{neth, "unsupported transaction type", txmanager.SendUnknown},
	{neth, "transaction too large", txmanager.SendUnknown},
	{nethForm, "transaction invalid, InvalidTxChainId: Expected 1, got 2.", txmanager.SendUnknown},
	{nethForm, "transaction invalid, InvalidTxType: Transaction type in Istanbul is not supported.", txmanager.SendUnknown},
	{nethForm, "transaction invalid, TxGasLimitCapExceeded: Gas limit 2 exceeded cap of 1.", txmanager.SendUnknown},
	{nethForm, "transaction invalid, NonceTooHigh: Nonce exceeds max nonce", txmanager.SendUnknown},
	{nethRLP, "Invalid RLP.", txmanager.SendUnknown},
	{nethOld, "OwnNonceAlreadyUsed", txmanager.SendUnknown},
	{nethOld, "Invalid, transaction Hash is null", txmanager.SendUnknown},
	{nethOld, "GasLimitExceeded, Gas limit: 1, gas limit of rejected tx: 2", txmanager.SendUnknown},
	{erigon, "INTERNAL_ERROR: mined", txmanager.SendUnknown},
	{erigon, "INVALID: oversized data", txmanager.SendUnknown},
	{erigon, "INVALID: RLPTooLong", txmanager.SendUnknown},
	{erigon, "INVALID: fork supporting this transaction type is not activated yet", txmanager.SendUnknown},
	{erigon, "INTERNAL_ERROR: gas limit is too high", txmanager.SendUnknown},
	{erigon, "INTERNAL_ERROR: EIP-7702 transaction with authority already reserved", txmanager.SendUnknown},
	{erigonParse, "INTERNAL_ERROR: rlp parse transaction: recovering sender from signature: invalid transaction v, r, s values", txmanager.SendUnknown},
	{erigonParse, "INTERNAL_ERROR: rlp parse transaction: invalid chainID, 5 (expected 1)", txmanager.SendUnknown},
	{erigonAPI, "invalid chain id, expected: 1 got: 2", txmanager.SendUnknown},
	{erigonAPI, "tx fee (1.50 ether) exceeds the configured cap (1.00 ether)", txmanager.SendOverNodeCap},
	{erigonOff, "TxPool Disabled", txmanager.SendUnknown},
	{besu, "Wrong chainId", txmanager.SendUnknown},
	{besu, "Transaction pool not enabled. (Either txpool explicitly disabled, or node not yet in sync).", txmanager.SendUnknown},
	{besu, "An invalid transaction with a lower nonce exists", txmanager.SendUnknown},
	{besu, "Invalid block param (block not found)", txmanager.SendUnknown}, // its answer to bytes that are not a transaction
	{besu, "Invalid params", txmanager.SendUnknown},
	{besu, "Invalid transaction type", txmanager.SendUnknown},
	{besu, "Internal error", txmanager.SendUnknown},
	{besu, "Transaction gas limit exceeds block gas limit", txmanager.SendUnknown},
	{besu, "Transaction gas limit cap exceeded", txmanager.SendUnknown},
	{besu, "Transaction fee cap exceeded", txmanager.SendOverNodeCap},
	{besu, "Sender account not authorized to send transactions", txmanager.SendUnknown},
	{besu, "Initial sync is still in progress", txmanager.SendUnknown},
	{besu, "ChainId not supported", txmanager.SendUnknown},
	{besu, "Plugin has marked the transaction as not acceptable by the transaction pool", txmanager.SendUnknown},
	{reth, "invalid chain ID", txmanager.SendUnknown},
	{reth, "exceeds block gas limit", txmanager.SendUnknown},
	{reth, "exceeds max transaction gas limit", txmanager.SendUnknown},
	{reth, "gas limit too high", txmanager.SendUnknown},
	{reth, "intrinsic gas too high", txmanager.SendUnknown},
	{reth, "tx fee (2 wei) exceeds the configured cap (1 wei)", txmanager.SendOverNodeCap},
	{reth, "oversized data: transaction size 131073, limit 131072", txmanager.SendUnknown},
	{reth, "transaction type not supported", txmanager.SendUnknown},
	{reth, "sender is not an EOA", txmanager.SendUnknown},
	{reth, "address already reserved", txmanager.SendUnknown},
	{reth, "Batch transaction sender channel closed", txmanager.SendUnknown},
	{rethPool, "authority already reserved", txmanager.SendUnknown},
	{anvil, "invalid chain id for signer", txmanager.SendUnknown},
	{anvilPool, "intrinsic gas too high -- tx.gas_limit > env.block.gas_limit", txmanager.SendUnknown},
	{anvilPool, "intrinsic gas too high -- tx.gas_limit > env.cfg.tx_gas_limit_cap", txmanager.SendUnknown},
	{anvil, "intrinsic gas too high -- CallGasCostMoreThanGasLimit", txmanager.SendUnknown},
	{anvil, "Transaction gas limit is greater than the block gas limit, gas_limit: 2, cap: 1", txmanager.SendUnknown},
	{anvil, "sender not an eoa", txmanager.SendUnknown},
	{anvil, "Cyclic transaction detected", txmanager.SendUnknown},
	{anvil, "Incompatible EIP-155 transaction, signed for another chain", txmanager.SendUnknown},
	{anvil, "Unknown transaction type not supported", txmanager.SendUnknown},
	{"made up: a phrase inside others", "unknown transaction", txmanager.SendUnknown},
	{"made up: a phrase inside others", "not already known", txmanager.SendUnknown},
	{"made up: a phrase that goes on", "already known to be invalid", txmanager.SendUnknown},
	{"made up: a reason that is not the first", "transaction is not invalid, intrinsic gas too low", txmanager.SendUnknown},
	{"made up", "", txmanager.SendUnknown},
	{"JSON-RPC clients", "response batch did not contain a response to this call", txmanager.SendUnknown},
}
