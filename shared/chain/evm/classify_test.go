package evm

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/nonce"
)

// Where the texts come from. Texts with numbers are those formats filled in.
const (
	geth       = "go-ethereum v1.17.10 core/error.go, core/txpool, core/types, internal/ethapi"
	nethermind = "NethermindEth/nethermind Nethermind.TxPool/AcceptTxResult.cs, TxPoolErrorMessages.cs (2026)"
	nethOld    = "Nethermind before 2026, as smartcontractkit/chainlink core/chains/evm/client/errors.go has its texts"
	erigon     = "erigontech/erigon txnprovider/txpool/txpoolcfg/txpoolcfg.go; prefixed by ImportResult in rpc/jsonrpc SendRawTransaction"
	besu       = "hyperledger/besu jsonrpc/internal/response/RpcErrorType.java"
	reth       = "paradigmxyz/reth crates/rpc/rpc-eth-types/src/error/mod.rs"
	rethPool   = "paradigmxyz/reth crates/transaction-pool/src/error.rs"
	anvil      = "foundry-rs/foundry crates/anvil/src/eth/error.rs, as anvil 1.7.1 answers (its pool's own words are not what it answers)"
)

var sendTexts = []struct {
	source, text string
	want         nonce.SendClass
}{
	{geth, "already known", nonce.SendAlreadyKnown},
	{nethermind, "already known", nonce.SendAlreadyKnown},
	{nethOld, "AlreadyKnown", nonce.SendAlreadyKnown},
	{erigon, "ALREADY_EXISTS: already known", nonce.SendAlreadyKnown},
	{erigon, "ALREADY_EXISTS: existing txn with same hash", nonce.SendAlreadyKnown},
	{besu, "Known transaction", nonce.SendAlreadyKnown},
	{reth, "already known", nonce.SendAlreadyKnown},
	{rethPool, "[0x3d5a9f]: already imported", nonce.SendAlreadyKnown},
	{anvil, "transaction already imported", nonce.SendAlreadyKnown},

	{geth, "nonce too low: next nonce 1, tx nonce 0", nonce.SendNonceTooLow},
	{nethermind, "nonce too low", nonce.SendNonceTooLow},
	{nethOld, "OldNonce, Current nonce: 22, nonce of rejected tx: 17", nonce.SendNonceTooLow},
	{erigon, "INTERNAL_ERROR: nonce too low", nonce.SendNonceTooLow},
	{besu, "Nonce too low", nonce.SendNonceTooLow},
	{reth, "nonce too low: next nonce 5, tx nonce 4", nonce.SendNonceTooLow},
	{anvil, "nonce too low", nonce.SendNonceTooLow},

	{geth, "nonce too high: tx nonce 9, gapped nonce 3", nonce.SendNonceTooHigh},
	{geth, "gapped-nonce tx from delegated accounts", nonce.SendNonceTooHigh},
	{nethermind, "nonce too high", nonce.SendNonceTooHigh},
	{nethermind, "nonce too far in future", nonce.SendNonceTooHigh},
	{nethermind, "delegation nonce gap", nonce.SendNonceTooHigh},
	{nethOld, "NonceGap, Future nonce. Expected nonce: 10", nonce.SendNonceTooHigh},
	{besu, "Nonce too high", nonce.SendNonceTooHigh},
	{besu, "Transaction nonce is too distant from current sender nonce", nonce.SendNonceTooHigh},
	{reth, "nonce too high", nonce.SendNonceTooHigh},
	{anvil, "Nonce too high", nonce.SendNonceTooHigh},

	{geth, "replacement transaction underpriced", nonce.SendUnderpriced},
	{nethermind, "replacement transaction underpriced", nonce.SendUnderpriced},
	{nethOld, "ReplacementNotAllowed", nonce.SendUnderpriced},
	{erigon, "UNDERPRICED: replacement transaction underpriced", nonce.SendUnderpriced},
	{erigon, "INTERNAL_ERROR: could not replace existing tx", nonce.SendUnderpriced},
	{erigon, "INTERNAL_ERROR: replaced by transaction with higher tip", nonce.SendUnderpriced},
	{besu, "Replacement transaction underpriced", nonce.SendUnderpriced},
	{reth, "replacement transaction underpriced", nonce.SendUnderpriced},
	{rethPool, "[0x3d5a9f]: insufficient gas price to replace existing transaction", nonce.SendUnderpriced},
	{anvil, "replacement transaction underpriced", nonce.SendUnderpriced},

	{geth, "transaction underpriced", nonce.SendFeeTooLow},
	{geth, "transaction gas price below minimum: gas tip cap 0, minimum needed 1", nonce.SendFeeTooLow},
	{geth, "max fee per gas less than block base fee: address 0xfe, maxFeePerGas: 1, baseFee: 2", nonce.SendFeeTooLow},
	{nethermind, "transaction underpriced", nonce.SendFeeTooLow},
	{nethOld, "FeeTooLow, EffectivePriorityFeePerGas too low 10 < 20, BaseFee: 30", nonce.SendFeeTooLow},
	{nethOld, "FeeTooLowToCompete", nonce.SendFeeTooLow},
	{erigon, "UNDERPRICED: underpriced", nonce.SendFeeTooLow},
	{erigon, "FEE_TOO_LOW: fee too low", nonce.SendFeeTooLow},
	{besu, "Gas price below configured minimum gas price", nonce.SendFeeTooLow},
	{besu, "Gas price below current base fee", nonce.SendFeeTooLow},
	{reth, "transaction underpriced", nonce.SendFeeTooLow},
	{reth, "max fee per gas less than block base fee", nonce.SendFeeTooLow},
	{reth, "transaction priority fee below minimum required priority fee 1000000", nonce.SendFeeTooLow},
	{anvil, "max fee per gas less than block base fee", nonce.SendFeeTooLow},

	{geth, "insufficient funds for gas * price + value: balance 0, tx cost 1, overshot 1", nonce.SendInsufficientFunds},
	{nethermind, "insufficient funds for gas * price + value", nonce.SendInsufficientFunds},
	{nethOld, "InsufficientFunds, Account balance: 4, cumulative cost: 5", nonce.SendInsufficientFunds},
	{erigon, "INTERNAL_ERROR: insufficient funds", nonce.SendInsufficientFunds},
	{besu, "Upfront cost exceeds account balance", nonce.SendInsufficientFunds},
	{"Besu, as CommonErrorMapping of a public wallet front end quotes it",
		"Upfront cost exceeds account balance (transaction up-front cost 0x7000000 exceeds transaction sender account balance 0x0)", nonce.SendInsufficientFunds},
	{reth, "insufficient funds for gas * price + value: have 0 want 1", nonce.SendInsufficientFunds},
	{reth, "insufficient funds for transfer", nonce.SendInsufficientFunds},
	{rethPool, "[0x3d5a9f]: transaction overdraws from account", nonce.SendInsufficientFunds},
	{anvil, "Insufficient funds for gas * price + value", nonce.SendInsufficientFunds},

	{geth, "txpool is full", nonce.SendPoolFull},
	{geth, "account limit exceeded: pooled 16 txs", nonce.SendPoolFull},
	{geth, "future transaction tries to replace pending", nonce.SendPoolFull},
	{geth, "in-flight transaction limit reached for delegated accounts", nonce.SendPoolFull},
	{nethermind, "delegation authority has pending transaction", nonce.SendPoolFull},
	{erigon, "INTERNAL_ERROR: pending sub-pool is full", nonce.SendPoolFull},
	{erigon, "INTERNAL_ERROR: baseFee sub-pool is full", nonce.SendPoolFull},
	{erigon, "INTERNAL_ERROR: spammer", nonce.SendPoolFull},
	{reth, "txpool is full", nonce.SendPoolFull},

	{geth, "invalid sender: invalid transaction v, r, s values", nonce.SendInvalid},
	{geth, "intrinsic gas too low: gas 20000, minimum needed 21000", nonce.SendInvalid},
	{geth, "insufficient gas for floor data gas cost: gas 21000, minimum needed 40000", nonce.SendInvalid},
	{geth, "max priority fee per gas higher than max fee per gas", nonce.SendInvalid},
	{geth, "max initcode size exceeded: code size 49153 limit 49152", nonce.SendInvalid},
	{geth, "transaction gas limit too high (cap: 16777216, tx: 16777217)", nonce.SendInvalid},
	{geth, "rlp: value size exceeds available input length", nonce.SendInvalid},
	{geth, "typed transaction too short", nonce.SendInvalid},
	{nethermind, "failed to recover sender", nonce.SendInvalid},
	{erigon, "INVALID: invalid sender", nonce.SendInvalid},
	{erigon, "INTERNAL_ERROR: IntrinsicGas", nonce.SendInvalid},
	{erigon, "INTERNAL_ERROR: initcode too large", nonce.SendInvalid},
	{besu, "Invalid signature", nonce.SendInvalid},
	{besu, "Intrinsic gas exceeds gas limit", nonce.SendInvalid},
	{besu, "Max priority fee per gas exceeds max fee per gas", nonce.SendInvalid},
	{reth, "invalid transaction signature", nonce.SendInvalid},
	{reth, "failed to decode signed transaction", nonce.SendInvalid},
	{anvil, "Failed to decode transaction", nonce.SendInvalid},
	{anvil, "Empty transaction data", nonce.SendInvalid},
	{anvil, "Failed to recover the signer", nonce.SendInvalid},
	{anvil, "max priority fee per gas higher than max fee per gas", nonce.SendInvalid},
	{anvil, "max initcode size exceeded", nonce.SendInvalid},
	{anvil, "intrinsic gas too low", nonce.SendInvalid},

	// What says something about the node, its limits or the moment.
	{geth, "invalid sender: invalid chain id for signer: have 1 want 2", nonce.SendUnknown},
	{geth, "tx fee (1.50 ether) exceeds the configured cap (1.00 ether)", nonce.SendUnknown},
	{geth, "exceeds block gas limit", nonce.SendUnknown},
	{geth, "oversized data: transaction size 131073, limit 131072", nonce.SendUnknown},
	{geth, "transaction type not supported", nonce.SendUnknown},
	{geth, "address already reserved", nonce.SendUnknown},
	{nethermind, "transaction invalid", nonce.SendUnknown},
	{nethermind, "node is syncing", nonce.SendUnknown},
	{erigon, "INTERNAL_ERROR: mined", nonce.SendUnknown},
	{besu, "Wrong chainId", nonce.SendUnknown},
	{besu, "Transaction pool not enabled. (Either txpool explicitly disabled, or node not yet in sync).", nonce.SendUnknown},
	{besu, "An invalid transaction with a lower nonce exists", nonce.SendUnknown},
	{reth, "invalid chain ID", nonce.SendUnknown},
	{anvil, "invalid chain id for signer", nonce.SendUnknown},
	{anvil, "intrinsic gas too high -- tx.gas_limit > env.block.gas_limit", nonce.SendUnknown},
	{anvil, "Unknown transaction type not supported", nonce.SendUnknown},
	{"made up: a phrase inside others", "unknown transaction", nonce.SendUnknown},
	{"made up: a phrase inside others", "not already known", nonce.SendUnknown},
	{"made up: a phrase that goes on", "already known to be invalid", nonce.SendUnknown},
	{"made up", "", nonce.SendUnknown},
	{"JSON-RPC clients", "response batch did not contain a response to this call", nonce.SendUnknown},
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, c := range sendTexts {
		for _, text := range []string{c.text, strings.ToUpper(c.text), strings.ToLower(c.text)} {
			if got := classify(text); got != c.want {
				t.Errorf("%q (%s): got %s, want %s", text, c.source, got, c.want)
			}
		}
	}
}

// No words make an acceptance, letter case means nothing, and words glued to a
// phrase take its meaning.
func FuzzClassify(f *testing.F) {
	for _, c := range sendTexts {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		class := classify(text)
		if class == nonce.SendAccepted {
			t.Errorf("%q: got accepted, want anything else", text)
		}
		if upper := strings.ToUpper(text); strings.ToLower(upper) == strings.ToLower(text) && classify(upper) != class {
			t.Errorf("%q: got %s, in upper case %s, want the same", text, class, classify(upper))
		}
		if got := classify("un" + text + "n"); len(text) > 0 && !strings.ContainsAny(text, ":]") && got != nonce.SendUnknown {
			t.Errorf("%q inside a word: got %s, want unknown", text, got)
		}
		if got := classify(text + " for chain id 5"); got != nonce.SendUnknown {
			t.Errorf("%q about the chain's id: got %s, want unknown", text, got)
		}
	})
}
