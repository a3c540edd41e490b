package chain

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// Canonical returns the node with a check of each address that it returns. An address that is not in the
// family's canonical form is an error, since digests and policies compare addresses as text. The check
// queries nothing.
func Canonical(family Family, node Node) Node { return canonicalNode{Node: node, family: family} }

type canonicalNode struct {
	Node
	family Family
}

// checkAddress refuses an address that the family's ParseAddress does not return unchanged.
func (n canonicalNode) checkAddress(method string, a txmanager.Address) error {
	want, err := n.family.ParseAddress(a.String())
	switch {
	case err != nil:
		return fmt.Errorf("node %s: %s returned the address %q, want the canonical form %s: %w", n.Name(), method, a.String(), n.family.AddressForm(), err)
	case want != a:
		return fmt.Errorf("node %s: %s returned the address %q, want the canonical form %q", n.Name(), method, a.String(), want.String())
	}
	return nil
}

// checkOptional is checkAddress where nil means that there is none.
func (n canonicalNode) checkOptional(method string, a *txmanager.Address) error {
	if a == nil {
		return nil
	}
	return n.checkAddress(method, *a)
}

// ParsePayload implements [Node].
func (n canonicalNode) ParsePayload(payload []byte) (txmanager.Call, error) {
	call, err := n.Node.ParsePayload(payload)
	if err == nil {
		err = n.checkOptional("ParsePayload", call.To)
	}
	return call, err
}

// ParseSigned implements [Node].
func (n canonicalNode) ParseSigned(raw []byte) (from txmanager.Address, tx txmanager.Unsigned, s txmanager.Signed, err error) {
	from, tx, s, err = n.Node.ParseSigned(raw)
	if err == nil {
		err = n.checkAddress("ParseSigned", from)
	}
	if err == nil {
		err = n.checkOptional("ParseSigned", tx.To)
	}
	return from, tx, s, err
}

// FindConsumingTx implements [Node].
func (n canonicalNode) FindConsumingTx(ctx context.Context, s txmanager.Submitter, nonce uint64) (txmanager.ConsumingTx, error) {
	tx, err := n.Node.FindConsumingTx(ctx, s, nonce)
	if err == nil {
		err = n.checkOptional("FindConsumingTx", tx.To)
	}
	return tx, err
}

// ReadBlocks implements [Node].
func (n canonicalNode) ReadBlocks(ctx context.Context, q txmanager.BlocksQuery) (txmanager.BlocksRead, error) {
	read, err := n.Node.ReadBlocks(ctx, q)
	for _, tx := range read.Transactions {
		if err == nil {
			err = n.checkOptional("ReadBlocks", tx.To)
		}
	}
	return read, err
}

// Transaction implements [Node].
func (n canonicalNode) Transaction(ctx context.Context, hash txmanager.Hash) (txmanager.SignedTransaction, error) {
	tx, err := n.Node.Transaction(ctx, hash)
	if err == nil {
		err = n.checkAddress("Transaction", tx.From)
	}
	if err == nil {
		err = n.checkOptional("Transaction", tx.Tx.To)
	}
	return tx, err
}

// Payments implements [Node].
func (n canonicalNode) Payments(ctx context.Context, q PaymentsQuery) (Payments, error) {
	read, err := n.Node.Payments(ctx, q)
	for _, p := range read.Found {
		if err == nil {
			err = n.checkOptional("Payments", p.Token)
		}
		if err == nil {
			err = n.checkOptional("Payments", p.To)
		}
	}
	return read, err
}
