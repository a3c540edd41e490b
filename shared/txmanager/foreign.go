package txmanager

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/big"
	"time"
)

// ForeignTransaction is a transaction that consumed a nonce of the account and is no version
// stored for it. It was read from the chain at finality. It is stored with the PROTECT incident in
// which it was read.
type ForeignTransaction struct {
	Nonce      uint64
	Incident   int
	Tx         ConsumingTx // Data is nil where it is longer than [MaxForeignData]
	CallDigest [32]byte    // of to, value and data: see [ConsumingTx.CallDigest]
	Succeeded  bool
	Receipt    json.RawMessage // the node's receipt, as proof
	Proves     string          // the payout that it proves paid; "": none; set by the store
	ReadAt     time.Time       // the database's clock; set by the store
}

// ErrForeignChanged reports that a node now has another foreign transaction for a nonce than the
// one that a release used as evidence. A reorg went below finality. The stored transaction is
// kept.
var ErrForeignChanged = fmt.Errorf("%w that a nonce was consumed by the transaction that an earlier release relied on", ErrNoQuorum)

// MaxForeignData bounds the stored data of a foreign transaction, in bytes. Of longer data only
// the call digest is stored.
const MaxForeignData = 16 << 10

// CallDigest identifies the effect of the transaction: the address called, the value and the data.
// Transactions with the same digest do the same.
func (t ConsumingTx) CallDigest() [32]byte { return callDigest(t.To, t.ValueWei, t.Data) }

// Digest is the [ConsumingTx.CallDigest] of a transaction that makes call c.
func (c Call) Digest() [32]byte {
	return callDigest(c.To, cmp.Or(c.Value, new(big.Int)).String(), c.Data)
}

func callDigest(to *Address, valueWei string, data []byte) [32]byte {
	address := "create"
	if to != nil {
		address = to.String()
	}
	return sha256.Sum256(append([]byte(address+" "+valueWei+" "), data...))
}

// Does reports whether the foreign transaction has the To, Value and Data of c.
func (f ForeignTransaction) Does(c Call) bool { return c.Digest() == f.CallDigest }

// ForeignScan is how far blocks were read for foreign transactions of one submitter, in one
// PROTECT incident. It is only a hint: a receipt proves each stored transaction, and blocks are
// read again where one was not found.
type ForeignScan struct {
	Incident int
	Begun    bool       // reading blocks has begun
	Start    uint64     // the block before the first one read
	Block    uint64     // every block after Start, up to this one, was read
	Final    uint64     // the last final block, when it was last asked for
	Again    *uint64    // how far the blocks were read again; nil: no second reading now
	Passes   int        // how often all of them were read
	EndedAt  *time.Time // when the last final block was reached, the last time; nil: not yet
	MovedAt  time.Time  // when it was last stored

	TerminalBlock *uint64   // the block of the highest terminal nonce below the missing ones; nil: none
	Registered    time.Time // when the submitter was registered
}

// Progress describes r for an operator.
func (r ForeignScan) Progress() string {
	switch {
	case !r.Begun:
		return "blocks are not read yet"
	case r.EndedAt != nil:
		return fmt.Sprintf("all blocks up to the last final one, %d, were read", r.Block)
	}
	return fmt.Sprintf("blocks are being read: up to %d of %d", r.Block, r.Final)
}
