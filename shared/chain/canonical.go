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

// check returns the error of a method's call, or that of the first address that the family's ParseAddress
// does not return unchanged; nil is no address.
func (n canonicalNode) check(method string, err error, addresses ...*txmanager.Address) error {
	for _, a := range addresses {
		if err != nil || a == nil {
			continue
		}
		want, invalid := n.family.ParseAddress(a.String())
		switch {
		case invalid != nil:
			err = fmt.Errorf("node %s: %s returned the address %q, want the canonical form %s: %w",
				n.Name(), method, a.String(), n.family.AddressForm(), invalid)
		case want != *a:
			err = fmt.Errorf("node %s: %s returned the address %q, want the canonical form %q", n.Name(), method, a.String(), want.String())
		}
	}
	return err
}

// ParsePayload implements [Node].
func (n canonicalNode) ParsePayload(payload []byte) (txmanager.Call, error) {
	call, err := n.Node.ParsePayload(payload)
	return call, n.check("ParsePayload", err, call.To)
}

// ParseSigned implements [Node].
func (n canonicalNode) ParseSigned(raw []byte) (from txmanager.Address, tx txmanager.Unsigned, s txmanager.Signed, err error) {
	from, tx, s, err = n.Node.ParseSigned(raw)
	return from, tx, s, n.check("ParseSigned", err, &from, tx.To)
}

// FindConsumingTx implements [Node].
func (n canonicalNode) FindConsumingTx(ctx context.Context, s txmanager.Submitter, nonce uint64) (txmanager.ConsumingTx, error) {
	tx, err := n.Node.FindConsumingTx(ctx, s, nonce)
	return tx, n.check("FindConsumingTx", err, tx.To)
}

// ReadBlocks implements [Node].
func (n canonicalNode) ReadBlocks(ctx context.Context, q txmanager.BlocksQuery) (txmanager.BlocksRead, error) {
	read, err := n.Node.ReadBlocks(ctx, q)
	for _, tx := range read.Transactions {
		err = n.check("ReadBlocks", err, tx.To)
	}
	return read, err
}

// Transaction implements [Node].
func (n canonicalNode) Transaction(ctx context.Context, hash txmanager.Hash) (txmanager.SignedTransaction, error) {
	tx, err := n.Node.Transaction(ctx, hash)
	return tx, n.check("Transaction", err, &tx.From, tx.Tx.To)
}

// Payments implements [Node].
func (n canonicalNode) Payments(ctx context.Context, q PaymentsQuery) (Payments, error) {
	read, err := n.Node.Payments(ctx, q)
	for _, p := range read.Found {
		err = n.check("Payments", err, p.Token, p.To)
	}
	return read, err
}
