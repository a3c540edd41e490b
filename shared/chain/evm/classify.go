package evm

import (
	"regexp"
	"strings"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// classify returns the meaning of a node's refusal of a raw transaction. An estimate for an account that
// cannot pay the call's value is refused with the same text. It is the only reader of these texts; the table of its test names the source of each.
//
// A phrase counts only as a whole: from the start of the text or of one of its parts (Nethermind's
// reasons follow a comma). It reaches up to a punctuation mark or the end. So "unknown transaction
// type" is not a "known transaction". A text without a known phrase is [txmanager.SendUnknown], which
// decides nothing.
func classify(text string) txmanager.SendClass {
	if otherChain.MatchString(text) {
		return txmanager.SendUnknown
	}
	for _, rule := range sendRules {
		if rule.phrase.MatchString(text) {
			return rule.class
		}
	}
	return txmanager.SendUnknown
}

// otherChain matches errors of a node on another chain. They concern the node and not the bytes,
// although some nodes report "invalid sender".
var otherChain = regexp.MustCompile(`(?i)chain ?id`)

// sendRules lists the classes; the first match decides. [txmanager.SendInvalid] is for bytes that the
// encoding or the active consensus rules forbid for every account, pool and fee. A node's own limits
// (size, block gas limit) are not that. Nor is [txmanager.SendOverNodeCap], a setting of go-ethereum,
// Erigon, Besu and reth (1 ether by default); Nethermind has none.
var sendRules = []struct {
	class  txmanager.SendClass
	phrase *regexp.Regexp
}{
	{txmanager.SendAlreadyKnown, phrases(`already ?known`, `(transaction )?already imported`, `known transaction`, `existing txn? with same hash`)},
	{txmanager.SendNonceTooLow, phrases(`nonce too low`, `OldNonce`)},
	{txmanager.SendNonceTooHigh, phrases(`nonce too high`, `NonceGap`, `nonce ?too ?far ?in ?future`, `delegation nonce gap`,
		`gapped-nonce tx from delegated accounts`, `transaction nonce is too distant from current sender nonce`)},
	{txmanager.SendUnderpriced, phrases(`replacement transaction underpriced`, `ReplacementNotAllowed`, `could not replace existing tx`,
		`insufficient gas price to replace existing transaction`, `replaced by transaction with higher tip`)},
	{txmanager.SendFeeTooLow, phrases(`(transaction )?underpriced`, `transaction gas price below minimum`, `fee ?too ?low(ToCompete)?`,
		`max fee per gas less than block base fee`, `gas price below configured minimum gas price`,
		`gas price below current base fee`, `transaction priority fee below minimum required priority fee( \d+)?`)},
	{txmanager.SendInsufficientFunds, phrases(`insufficient ?funds( for gas \* price \+ value| for transfer)?`,
		`upfront cost exceeds account balance`, `transaction overdraws from account`)},
	{txmanager.SendPoolFull, phrases(`txpool is full`, `out of capacity`, `account limit exceeded`, `spammer`,
		`(pending|basefee|queued) sub-pool is full`, `future transaction tries to replace pending`,
		`in-flight transaction limit reached for delegated accounts`, `delegation authority has pending transaction`)},
	{txmanager.SendOverNodeCap, phrases(`tx fee \([^()]*\) exceeds the configured cap`, `transaction fee cap exceeded`)},
	{txmanager.SendInvalid, phrases(`invalid sender`, `invalid signature`, `invalid transaction signature`, `InvalidTxSignature`,
		`failed to recover (sender|the signer)`, `FailedToResolveSender`,
		`failed to decode (signed )?transaction`, `empty transaction data`, `rlp`, `typed transaction too short`, `negative value`,
		`intrinsic gas too low`, `IntrinsicGas`, `intrinsic gas exceeds gas limit`, `insufficient gas for floor data gas cost`,
		`gas uint64 overflow`, `GasUintOverflow`, `nonce has max value`, `transaction gas limit too high`,
		`max priority fee per gas higher than max fee per gas`, `max priority fee per gas exceeds max fee per gas`, `InvalidMaxPriorityFeePerGas`,
		`max (priority )?fee per gas higher than 2\^256-1`, `max initcode size exceeded`, `initcode too large`)},
}

// phrases matches any of the alternatives as a whole phrase, in any letter case.
func phrases(alternatives ...string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)(?:^|: |\] |^transaction invalid, )(?:` + strings.Join(alternatives, "|") + `)(?:$|[.,;:]| ?[(\[])`)
}
