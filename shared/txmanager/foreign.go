package txmanager

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// ForeignTransaction is a transaction that consumed a nonce of the account and that is
// no version stored for it. It was read from the chain at finality, and is kept with the
// episode of PROTECT in which it was read.
type ForeignTransaction struct {
	Nonce      uint64
	Incident   int
	Tx         ConsumingTx // Data is nil where more than [MaxForeignData] bytes were sent
	CallDigest [32]byte    // of to, value and data: see [ConsumingTx.CallDigest]
	Succeeded  bool
	Receipt    json.RawMessage // as the node gave it: the proof
	Proves     string          // the payout that it proves paid; "": none; set by the store
	ReadAt     time.Time       // the database's clock; set by the store
}

// ErrForeignChanged reports a foreign transaction by which a release has judged, where a
// node now has another one: a reorg went below finality. What is stored stays.
var ErrForeignChanged = fmt.Errorf("%w that a nonce was consumed by the transaction by which an earlier release judged", ErrNoQuorum)

// MaxForeignData bounds the data that is kept of a foreign transaction, in bytes. Of
// longer data the digest of the call is kept.
const MaxForeignData = 16 << 10

// CallDigest stands for what the transaction does: the address called, the value and
// the data. Two transactions do the same if it is the same.
func (t ConsumingTx) CallDigest() [32]byte { return callDigest(t.To, t.ValueWei, t.Data) }

// Digest is the [ConsumingTx.CallDigest] of a transaction that does what c wants.
func (c Call) Digest() [32]byte {
	value := c.Value
	if value == nil {
		value = new(big.Int)
	}
	return callDigest(c.To, value.String(), c.Data)
}

func callDigest(to *Address, valueWei string, data []byte) [32]byte {
	address := "create"
	if to != nil {
		address = strings.ToLower(to.String())
	}
	return sha256.Sum256(append([]byte(address+" "+valueWei+" "), data...))
}

// Does says that the foreign transaction does what c wants: to, value and data.
func (f ForeignTransaction) Does(c Call) bool { return c.Digest() == f.CallDigest }
