package evm

import (
	"errors"
	"math/big"
	"regexp"
	"slices"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/shared/nonce"
)

// block is what is read of a block.
type block struct {
	Number  hexutil.Uint64 `json:"number"`
	Hash    nonce.Hash     `json:"hash"`
	Parent  nonce.Hash     `json:"parentHash"`
	Time    hexutil.Uint64 `json:"timestamp"`
	BaseFee *hexutil.Big   `json:"baseFeePerGas"`
}

func (b block) header() nonce.Header {
	return nonce.Header{Number: uint64(b.Number), Hash: b.Hash, Parent: b.Parent, Time: uint64(b.Time)}
}

// linkedHeaders are the headers asked for from block number on, up to head, if
// the node gave each and each is the parent of the next; else none.
func linkedHeaders(calls []*call, number uint64, head nonce.Header) []nonce.Header {
	var headers []nonce.Header
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

// links is false if the two heights show that h is not in head's chain.
func links(h, head nonce.Header) bool {
	switch h.Number {
	case head.Number:
		return h.Hash == head.Hash
	case head.Number - 1:
		return h.Hash == head.Parent
	}
	return true
}

// fits is false if what else was seen shows that h is not in the head's chain.
func fits(h nonce.Header, v nonce.View) bool {
	return h.Number <= v.Head.Number && links(h, v.Head) && !slices.ContainsFunc(v.Headers, func(other nonce.Header) bool {
		return other.Number == h.Number && other.Hash != h.Hash
	})
}

// taggedHeader is nil for any doubt: the node has no such block, would not say,
// or gave one that is not in the head's chain.
func taggedHeader(a *call, v nonce.View) *nonce.Header {
	var b block
	if a == nil || a.into(&b) != nil || !fits(b.header(), v) {
		return nil
	}
	tagged := b.header()
	return &tagged
}

// watchedHashes are the hashes of the blocks at the heights, without those that
// the node did not give and those that the first head does not vouch for: a
// block above it came while the look was under way, and may have gone again.
func watchedHashes(heights []uint64, calls []*call, first nonce.Header, v nonce.View) map[uint64]nonce.Hash {
	hashes := make(map[uint64]nonce.Hash, len(heights))
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

func knownAnswers(hashes []nonce.Hash, calls []*call) map[nonce.Hash]nonce.Answer {
	answers := make(map[nonce.Hash]nonce.Answer, len(hashes))
	for i, hash := range hashes {
		var tx struct {
			Hash nonce.Hash `json:"hash"`
		}
		switch {
		case calls[i].null():
			answers[hash] = nonce.AnswerNotFound
		case calls[i].into(&tx) == nil && tx.Hash == hash:
			answers[hash] = nonce.AnswerFound
		default:
			answers[hash] = nonce.AnswerUnknown
		}
	}
	return answers
}

// estimateArgs is the call object of eth_estimateGas. It has no fees: with them
// a node would answer for the balance and the base fee of the moment, not for
// the call.
type estimateArgs struct {
	From  string         `json:"from"`
	To    *string        `json:"to,omitempty"`
	Value *hexutil.Big   `json:"value,omitempty"`
	Data  hexutil.Bytes  `json:"data,omitempty"`
	Gas   hexutil.Uint64 `json:"gas"` // the most that it may take
}

func askEstimate(from nonce.Address, c nonce.Call) *call {
	args := estimateArgs{From: from.String(), Data: c.Data, Gas: maxGas}
	if c.To != nil {
		to := c.To.String()
		args.To = &to
	}
	if c.Value != nil && c.Value.Sign() > 0 {
		args.Value = (*hexutil.Big)(new(big.Int).Set(c.Value))
	}
	return ask("eth_estimateGas", args, "latest")
}

func estimateAnswer(a *call) nonce.Estimate {
	var gas hexutil.Uint64
	err := a.into(&gas)
	if err == nil && gas > 0 {
		return nonce.Estimate{Outcome: nonce.Done, Gas: uint64(gas)}
	}
	if err == nil {
		return nonce.Estimate{Outcome: nonce.Unknown, Reason: "the node estimated 0 gas"}
	}
	outcome := nonce.Unknown
	if a.err != nil && haltsExecution(a.err) {
		outcome = nonce.Refused
	}
	return nonce.Estimate{Outcome: outcome, Reason: shorten(err.Error())}
}

// executionError is the code of a call that was executed and reverted, in
// go-ethereum and those that follow it.
const executionError = 3

// halted are the words of nodes for a call that was executed and failed for a
// reason that more gas or more balance would not mend. Out of gas is among them
// only where the limit was the one that was asked with, the most that a
// transaction may have; else it may be the node's own.
var halted = regexp.MustCompile(`(?i)\brevert(ed)?\b|invalid opcode|opcode 0x[0-9a-f]+ not defined|` +
	`invalid jump destination|stack underflow|max initcode size exceeded|gas required exceeds allowance \(16777216\)|InvalidFEOpcode|OpcodeNotFound|InvalidJump|BadInstruction`)

func haltsExecution(err error) bool {
	if coded, ok := errors.AsType[rpc.Error](err); ok && coded.ErrorCode() == executionError {
		return true
	}
	return halted.MatchString(err.Error())
}
