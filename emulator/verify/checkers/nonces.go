package checkers

import (
	"maps"
	"slices"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// chainNonces checks that the account's transactions have consecutive nonces from its start nonce on.
// Lower nonces were used before the account was registered. A gap is possible on a real chain: a
// delegation (EIP-7702) consumes a nonce without a transaction of the account.
func chainNonces(a *account, report reporter) {
	next := a.StartNonce
	for _, m := range a.chain {
		n := m.Nonce()
		if n < a.StartNonce {
			continue
		}
		for next < n && a.declared(next) {
			next++
		}
		if n != next {
			report(a.boundTo[n].ID, "the chain has nonce %d where nonce %d should follow", n, next)
		}
		next = n + 1
	}
	for _, t := range a.txs {
		if !a.settled || t.Nonce == nil || a.declared(*t.Nonce) {
			continue
		}
		if _, consumed := a.minedAt[*t.Nonce]; !consumed {
			report(t.ID, "nonce %d was handed out, and the chain has nothing there", *t.Nonce)
		}
	}
}

// minedIsStored looks each mined transaction up by its hash. If it is not stored as a version of its
// nonce, either a foreign signer sent it, or the system sent it before it stored it.
func minedIsStored(a *account, report reporter) {
	for _, m := range a.chain {
		n := m.Nonce()
		if n < a.StartNonce || a.declared(n) {
			continue
		}
		bound, isBound := a.boundTo[n]
		switch {
		case !isBound:
			report("", "the chain has %s at nonce %d, which is bound to nobody", m.Hash(), n)
		case !slices.ContainsFunc(a.versionsByTx[bound.ID], func(v version) bool { return v.Hash == m.Hash() }):
			report(bound.ID, "the chain has %s at its nonce %d, which is none of its stored versions", m.Hash(), n)
		}
	}
}

// binding checks that the history and the rows give each nonce to one transaction, and compares the
// rows with the cursor. A recycled nonce belongs to its last holder; its earlier holder may have no
// version at it.
func binding(a *account, report reporter) {
	passedOn := make(map[string]bool)
	for _, t := range a.txs {
		passedOn[t.ID] = t.passedOn()
	}
	nonceOf, txOf := make(map[string]uint64), make(map[uint64]string)
	bind := func(where, txID string, n *uint64) {
		was, isBound := nonceOf[txID]
		switch {
		case n == nil && isBound:
			report(txID, "%s: no nonce after nonce %d", where, was)
			return
		case n == nil:
			return
		case isBound && was != *n:
			report(txID, "%s: nonce %d after nonce %d", where, *n, was)
		}
		nonceOf[txID] = *n
		if first, taken := txOf[*n]; taken && first != txID {
			report(txID, "%s: nonce %d, which is bound to %s", where, *n, first)
			return
		}
		txOf[*n] = txID
	}
	for _, c := range a.history {
		if !passedOn[c.TxID] {
			bind("history", c.TxID, c.Nonce)
		}
	}
	for _, v := range a.versions {
		bind("a version", v.TxID, &v.Nonce)
	}
	for _, t := range a.txs {
		bind("the row", t.ID, t.Nonce)
	}
	contiguous(a, report)
}

// contiguous checks that the allocated nonces are exactly start … next-1.
func contiguous(a *account, report reporter) {
	next := a.StartNonce
	for _, n := range slices.Sorted(maps.Keys(a.boundTo)) {
		if n != next {
			report(a.boundTo[n].ID, "nonce %d is bound where nonce %d should follow", n, next)
		}
		next = n + 1
	}
	if next != a.NextNonce {
		report("", "the cursor gives nonce %d next, the nonces bound give %d", a.NextNonce, next)
	}
}

// versions checks each version against its row, with the sender recovered from the bytes.
func versions(a *account, report reporter) {
	for _, v := range a.versions {
		if a.archived[v.TxID] {
			continue
		}
		if v.tx == nil {
			report(v.TxID, "version %s: the bytes are no transaction", v.Hash)
			continue
		}
		if got := v.tx.Hash(); got != v.Hash {
			report(v.TxID, "version %s: the bytes have hash %s", v.Hash, got)
		}
		if v.tx.Nonce() != v.Nonce {
			report(v.TxID, "version %s: the bytes have nonce %d, the row nonce %d", v.Hash, v.tx.Nonce(), v.Nonce)
		}
		if signer, err := signerOf(v.tx); err != nil || signer != a.submitter {
			report(v.TxID, "version %s: signed by %q (error: %v)", v.Hash, signer, err)
		}
	}
}

// signerOf returns the account that signed tx, on the chain that tx names.
func signerOf(tx *types.Transaction) (txmanager.Submitter, error) {
	from, err := types.Sender(types.LatestSignerForChainID(tx.ChainId()), tx)
	if err != nil {
		return "", err
	}
	return eip155.NewSubmitter(tx.ChainId().Uint64(), eip155.Address(from)), nil
}
