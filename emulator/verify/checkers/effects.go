package checkers

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/verify/chainscan"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// oneEffect counts by requestId, not by transaction: a request that was stored twice is done twice.
// Versions at two nonces count as two effects even before either is mined, since the chain can accept
// both.
func oneEffect(a *account, report reporter) {
	recordedOnce(a, report)
	nonces := make(map[string]map[uint64]bool)
	effects := make(map[string][]common.Hash)
	for _, t := range a.txs {
		if nonces[t.RequestID] == nil {
			nonces[t.RequestID] = make(map[uint64]bool)
		}
		for _, v := range a.versionsByTx[t.ID] {
			if v.tx == nil || a.isPlaceholder(v.tx) {
				continue
			}
			nonces[t.RequestID][v.Nonce] = true
			if m, ok := a.minedHash[v.Hash]; ok && m.Succeeded() {
				effects[t.RequestID] = append(effects[t.RequestID], v.Hash)
			}
		}
		if m, ok := a.minedFor(t); ok && m.Succeeded() {
			effects[t.RequestID] = append(effects[t.RequestID], m.Hash())
		}
		if at, done := nonces[t.RequestID], effects[t.RequestID]; len(at) > 1 || len(done) > 1 {
			report(t.ID, "request %q has versions at nonces %v; mined: %v", t.RequestID, slices.Sorted(maps.Keys(at)), done)
		}
		effectFits(a, t, report)
	}
}

// recordedOnce checks that each transaction which a release recorded for a request belongs to that
// request only. It must be no version and no other request's record.
func recordedOnce(a *account, report reporter) {
	holder, versionOf := make(map[common.Hash]string), make(map[common.Hash]string)
	for _, v := range a.versions {
		if v.tx != nil && !a.isPlaceholder(v.tx) {
			versionOf[v.Hash] = v.TxID
		}
	}
	for _, t := range a.txs {
		m, ok := a.minedFor(t)
		if !ok {
			continue
		}
		if other, stored := versionOf[m.Hash()]; stored {
			report(t.ID, "it is recorded as %s, which is a stored version of %s", m.Hash(), other)
		}
		if other, taken := holder[m.Hash()]; taken {
			report(t.ID, "it is recorded as %s, and so is %s", m.Hash(), other)
		}
		holder[m.Hash()] = t.ID
	}
}

// minedFor returns the foreign transaction that a release recorded for t.
func (a *account) minedFor(t managed) (m chainscan.Tx, ok bool) {
	if t.RecordedNonce != nil {
		m, ok = a.minedAt[*t.RecordedNonce]
	}
	return m, ok
}

// effectFits compares the chain's transaction at a final transaction's nonce with the effect that its
// state states.
func effectFits(a *account, t managed, report reporter) {
	var m chainscan.Tx
	var found bool
	if n := t.minedAt(); n != nil {
		m, found = a.minedAt[*n]
	}
	switch {
	case t.State != txmanager.Confirmed && t.State != txmanager.Failed:
	case t.State == txmanager.Confirmed && !found:
		if !a.mayBeMissing(t) {
			report(t.ID, "it is %s, and the chain has nothing at its nonce", t.ended())
		}
	case t.State == txmanager.Confirmed, t.Sub == txmanager.Reverted && found:
		if a.mustShowPayload(t, m) && !carriesOut(m.Transaction, t.Payload) {
			report(t.ID, "it is %s, and %s at its nonce is not what its payload asks", t.ended(), m.Hash())
		}
	case t.Sub == txmanager.Placeholder && found:
		if !a.isPlaceholder(m.Transaction) {
			report(t.ID, "it is %s, and %s at its nonce is no placeholder", t.ended(), m.Hash())
		}
	case t.Sub != txmanager.Placeholder:
		notCarriedOut(a, t, report)
	}
}

// mustShowPayload reports whether m must do what t's payload asks. What its handler or owner made is
// known by its stored version alone.
func (a *account) mustShowPayload(t managed, m chainscan.Tx) bool {
	made := (t.Handler != "" || t.Reservation == txmanager.Used) && !a.isPlaceholder(m.Transaction)
	return !made && !a.archived[t.ID] && (t.RecordedNonce == nil || t.Payload != nil)
}

func notCarriedOut(a *account, t managed, report reporter) {
	for _, v := range a.versionsByTx[t.ID] {
		if m, ok := a.minedHash[v.Hash]; ok && m.Succeeded() && !a.isPlaceholder(m.Transaction) {
			report(t.ID, "it is %s, and its version %s was carried out", t.ended(), v.Hash)
		}
	}
}

// endsAsOnChain checks ends against the stored receipt and the blocks.
func endsAsOnChain(a *account, report reporter) {
	for _, t := range a.txs {
		switch {
		case !t.State.Terminal():
		case t.State == txmanager.Confirmed, t.Sub == txmanager.Reverted, t.Sub == txmanager.Placeholder:
			minedAsRecorded(a, t, report)
		case t.Sub == txmanager.Displaced:
			for _, v := range a.versionsByTx[t.ID] {
				if _, ok := a.minedHash[v.Hash]; ok {
					report(t.ID, "it is %s, and the chain has its version %s", t.ended(), v.Hash)
				}
			}
		case t.Nonce != nil: // rejected, or cancelled before allocation
			report(t.ID, "it is %s, and holds nonce %d", t.ended(), *t.Nonce)
		}
	}
}

// minedAsRecorded checks t against its receipt: in the canonical chain, at its nonce, in the stored
// block, with the status of its state. A placeholder consumes its nonce with either status. If the
// node could no longer return the transaction to a release, only the chain is compared.
func minedAsRecorded(a *account, t managed, report reporter) {
	if t.Receipt == nil && t.Sub == txmanager.RecordedOnChain {
		if m, ok := a.minedFor(t); !ok || !m.Succeeded() {
			report(t.ID, "it is %s without a receipt, and the chain has no transaction at its nonce that succeeded", t.ended())
		}
		return
	}
	if t.Receipt == nil {
		report(t.ID, "it is %s without a receipt", t.ended())
		return
	}
	m, ok := a.minedHash[common.Hash(t.Receipt.TxHash)]
	if !ok {
		if !a.mayBeMissing(t) {
			report(t.ID, "it is %s, and the chain does not have %s", t.ended(), t.Receipt.TxHash)
		}
		return
	}
	if n := t.minedAt(); n == nil || m.Nonce() != *n {
		report(t.ID, "it is %s by %s, which has nonce %d and not its own", t.ended(), m.Hash(), m.Nonce())
	}
	if m.Receipt.BlockHash != common.Hash(t.Receipt.BlockHash) && !a.shaken(t) {
		report(t.ID, "it is %s in block %s, and the chain has it in %s", t.ended(), t.Receipt.BlockHash, m.Receipt.BlockHash)
	}
	if t.Sub != txmanager.Placeholder && m.Succeeded() != (t.State == txmanager.Confirmed) {
		report(t.ID, "it is %s, and on the chain it succeeded: %t", t.ended(), m.Succeeded())
	}
}

// isPlaceholder reports whether tx only consumes its nonce: no value, no data, and sent to the account
// itself.
func (a *account) isPlaceholder(tx *types.Transaction) bool {
	return tx.To() != nil && eip155.Address(*tx.To()) == a.submitter.Address() &&
		tx.Value().Sign() == 0 && len(tx.Data()) == 0
}

// carriesOut reports whether tx does what the stored payload asks for. It parses the payload itself,
// since the system's own parser is under test.
func carriesOut(tx *types.Transaction, payload []byte) bool {
	var want struct {
		To    *common.Address
		Value string
		Data  hexutil.Bytes
	}
	if json.Unmarshal(payload, &want) != nil {
		return false
	}
	value := new(big.Int)
	if _, ok := value.SetString(want.Value, 10); !ok && want.Value != "" {
		return false
	}
	sameTo := (tx.To() == nil) == (want.To == nil) && (want.To == nil || *want.To == *tx.To())
	return sameTo && tx.Value().Cmp(value) == 0 && bytes.Equal(tx.Data(), want.Data)
}
