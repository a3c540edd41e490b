package evm

import (
	"errors"
	"math/big"
	"regexp"
	"slices"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// block holds the fields that are read of a block.
type block struct {
	Number  hexutil.Uint64 `json:"number"`
	Hash    txmanager.Hash `json:"hash"`
	Parent  txmanager.Hash `json:"parentHash"`
	Time    hexutil.Uint64 `json:"timestamp"`
	BaseFee *hexutil.Big   `json:"baseFeePerGas"`
}

func (b block) header() txmanager.Header {
	return txmanager.Header{Number: uint64(b.Number), Hash: b.Hash, Parent: b.Parent, Time: uint64(b.Time)}
}

// linkedHeaders returns the requested headers from block number on, up to head, if the node gave each
// and each is the parent of the next. Otherwise it returns none.
func linkedHeaders(calls []*call, number uint64, head txmanager.Header) []txmanager.Header {
	var headers []txmanager.Header
	for _, a := range calls {
		if number > head.Number {
			break
		}
		var b block
		if a.into(&b) != nil || uint64(b.Number) != number {
			return nil
		}
		if n := len(headers); n > 0 && headers[n-1].Hash != b.Parent {
			return nil
		}
		headers = append(headers, b.header())
		number++
	}
	if n := len(headers); n > 0 && !links(headers[n-1], head) {
		return nil
	}
	return headers
}

// links reports false if the two heights show that h is not in head's chain.
func links(h, head txmanager.Header) bool {
	switch h.Number {
	case head.Number:
		return h.Hash == head.Hash
	case head.Number - 1:
		return h.Hash == head.Parent
	}
	return true
}

// fits reports false if other parts of the observation show that h is not in the head's chain.
func fits(h txmanager.Header, v txmanager.ChainObservation) bool {
	return h.Number <= v.Head.Number && links(h, v.Head) && !slices.ContainsFunc(v.Headers, func(other txmanager.Header) bool {
		return other.Number == h.Number && other.Hash != h.Hash
	})
}

// taggedHeader returns nil in any doubt: the node has no such block, gave no answer, or gave a block
// outside the head's chain.
func taggedHeader(a *call, v txmanager.ChainObservation) *txmanager.Header {
	var b block
	if a == nil || a.into(&b) != nil || !fits(b.header(), v) {
		return nil
	}
	return new(b.header())
}

// watchedHashes returns the hashes of the blocks at the heights. It omits those that the node did not
// give, and those above the first head: a block above it was added during the query and may be gone
// again.
func watchedHashes(heights []uint64, calls []*call, first txmanager.Header, v txmanager.ChainObservation) map[uint64]txmanager.Hash {
	hashes := make(map[uint64]txmanager.Hash, len(heights))
	for i, n := range heights {
		var b block
		if calls[i].into(&b) != nil || uint64(b.Number) != n || n > first.Number {
			continue
		}
		if links(b.header(), first) && fits(b.header(), v) {
			hashes[n] = b.Hash
		}
	}
	return hashes
}

func knownAnswers(hashes []txmanager.Hash, calls []*call) map[txmanager.Hash]txmanager.Answer {
	answers := make(map[txmanager.Hash]txmanager.Answer, len(hashes))
	for i, hash := range hashes {
		var tx struct {
			Hash txmanager.Hash `json:"hash"`
		}
		switch {
		case calls[i].null():
			answers[hash] = txmanager.AnswerNotFound
		case calls[i].into(&tx) == nil && tx.Hash == hash:
			answers[hash] = txmanager.AnswerFound
		default:
			answers[hash] = txmanager.AnswerUnknown
		}
	}
	return answers
}

const estimateGas = "eth_estimateGas"

// estimateArgs is the call object of eth_estimateGas. It has no fees: with them the answer would depend
// on the present balance and base fee.
type estimateArgs struct {
	From  txmanager.Address  `json:"from"`
	To    *txmanager.Address `json:"to,omitempty"`
	Value *hexutil.Big       `json:"value,omitempty"`
	Data  hexutil.Bytes      `json:"data,omitempty"`
	Gas   hexutil.Uint64     `json:"gas"` // the gas limit of the estimate
}

func askEstimate(from txmanager.Address, c txmanager.Call) *call {
	args := estimateArgs{From: from, To: c.To, Data: c.Data, Gas: maxGas}
	if c.Value != nil && c.Value.Sign() > 0 {
		args.Value = (*hexutil.Big)(new(big.Int).Set(c.Value))
	}
	return ask(estimateGas, args, "latest")
}

func estimateAnswer(a *call) txmanager.Estimate {
	var gas hexutil.Uint64
	err := a.into(&gas)
	if err == nil && gas > 0 {
		return txmanager.Estimate{Outcome: txmanager.Done, Gas: uint64(gas)}
	}
	if err == nil {
		return txmanager.Estimate{Outcome: txmanager.Unknown, Reason: "the node estimated 0 gas"}
	}
	outcome := txmanager.Unknown
	if a.err != nil && haltsExecution(a.err) {
		outcome = txmanager.Refused
	}
	unfunded := outcome == txmanager.Unknown && classify(err.Error()) == txmanager.SendInsufficientFunds
	return txmanager.Estimate{Outcome: outcome, Reason: shorten(err.Error()), Unfunded: unfunded}
}

// executionError is the error code of a call that was executed and reverted, in go-ethereum and
// compatible nodes.
const executionError = 3

// halted matches the nodes' texts for a call that was executed and failed for a reason that more gas or
// balance would not fix. Out of gas counts only if the limit was the requested one, the maximum of a
// transaction; otherwise it may be the node's own limit.
var halted = regexp.MustCompile(`(?i)\brevert(ed)?\b|invalid opcode|opcode 0x[0-9a-f]+ not defined|` +
	`invalid jump destination|stack underflow|max initcode size exceeded|gas required exceeds allowance \(16777216\)|InvalidFEOpcode|OpcodeNotFound|InvalidJump|BadInstruction`)

func haltsExecution(err error) bool {
	if coded, ok := errors.AsType[rpc.Error](err); ok && coded.ErrorCode() == executionError {
		return true
	}
	return halted.MatchString(err.Error())
}
