package evm

import (
	"context"
	"errors"
	"slices"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// Send implements [txmanager.ChainConnector]. Raw transactions that do not fit one request
// (Options.MaxBatch calls, a few megabytes) take several round trips. After one in which not all were
// accepted nothing more is sent, since a later nonce needs the earlier ones. Within one request a node
// may accept a later nonce without an earlier one; it then keeps it queued. Concurrent sends share requests.
// Without an answer, nor one to the repetition, the result is unknown.
func (c *Connector) Send(ctx context.Context, raws [][]byte) []txmanager.SendResult {
	calls := askEach(raws, func(raw []byte) *call { return ask("eth_sendRawTransaction", hexutil.Encode(raw)) })
	for _, batch := range c.split(calls) {
		if err := c.share(ctx, c.sends, batch); err != nil {
			for _, a := range batch {
				a.err = noAnswerError{err}
			}
		}
		if slices.ContainsFunc(batch, refused) {
			break
		}
	}
	results := make([]txmanager.SendResult, len(raws))
	for i, a := range calls {
		results[i] = c.sendResult(raws[i], a)
	}
	return results
}

// refused reports that no node keeps the bytes.
func refused(a *call) bool {
	return a.err != nil && classify(a.err.Error()) != txmanager.SendAlreadyKnown
}

// noAnswerError marks the error of a failed round trip, so that it is not read as a node's text.
type noAnswerError struct{ error }

func (c *Connector) sendResult(raw []byte, a *call) txmanager.SendResult {
	result := txmanager.SendResult{Class: txmanager.SendUnknown, Node: c.node}
	if a.err != nil {
		if _, silent := errors.AsType[noAnswerError](a.err); !silent {
			result.Class = classify(a.err.Error())
		}
		result.Text = shorten(a.err.Error())
		return result
	}
	var hash txmanager.Hash
	if err := a.into(&hash); err != nil {
		result.Text = shorten(err.Error())
		return result
	}
	if want := txmanager.Hash(crypto.Keccak256(raw)); hash != want {
		result.Text = "the node answered with another hash: " + hash.String()
		return result
	}
	result.Class = txmanager.SendAccepted
	return result
}
