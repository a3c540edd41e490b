package checkers

import (
	"context"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/chainscan"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Evidence is an episode's chain and database, read once.
type Evidence struct {
	accounts []*account
}

// account holds all evidence about one submitter.
type account struct {
	submitter txmanager.Submitter
	foreign   []uint64
	settled   bool
	head      uint64 // the highest block that was read

	chain     []chainscan.Tx // in the chain's order
	minedAt   map[uint64]chainscan.Tx
	minedHash map[common.Hash]chainscan.Tx

	registered
	txs          []managed // by seq
	boundTo      map[uint64]managed
	versions     []version
	versionsByTx map[string][]version
	history      []change // in the order of writing
	archived     map[string]bool
}

// ReadEvidence reads the chain first and then the database. Bytes are stored before they are sent, so a
// correct database has whatever the chain showed.
func ReadEvidence(ctx context.Context, e Run) (_ *Evidence, err error) {
	defer steps.Return(&err)
	chain, err := chainscan.Read(ctx, e.RPC, nil)
	steps.OK(err, "read the chain at ", e.RPC)
	for _, s := range e.Submitters {
		if s.ChainID() != chain.ID {
			steps.Stopf("the node is of chain %d, not of %s's", chain.ID, s)
		}
	}
	accounts := readDatabase(ctx, e.Database, e.Submitters)
	for _, a := range accounts {
		a.foreign, a.settled = e.Foreign[a.submitter], e.Settled
		a.head, a.chain = chain.Head, chain.From(a.submitter.Address())
		a.declareLost(e.Lost)
		a.index()
	}
	return &Evidence{accounts}, nil
}

// declareLost declares each nonce at which the chain has a transaction of a lost database that this
// database does not have.
func (a *account) declareLost(lost map[string]bool) {
	stored := make(map[common.Hash]bool)
	for _, v := range a.versions {
		stored[v.Hash] = true
	}
	for _, m := range a.chain {
		if lost[m.Hash().String()] && !stored[m.Hash()] {
			a.foreign = append(slices.Clip(a.foreign), m.Nonce())
		}
	}
}

// index builds the maps. If two transactions have one nonce, either is found; the checker of the
// binding reports the other.
func (a *account) index() {
	a.minedAt, a.minedHash = make(map[uint64]chainscan.Tx), make(map[common.Hash]chainscan.Tx)
	for _, m := range a.chain {
		a.minedAt[m.Nonce()], a.minedHash[m.Hash()] = m, m
	}
	a.versionsByTx = make(map[string][]version)
	for _, v := range a.versions {
		a.versionsByTx[v.TxID] = append(a.versionsByTx[v.TxID], v)
	}
	a.findArchived()
	a.boundTo = make(map[uint64]managed)
	for _, t := range a.txs {
		if t.Nonce != nil {
			a.boundTo[*t.Nonce] = t
		}
	}
}

// findArchived finds the final transactions whose payload, bytes and history are all missing: an
// operator archived their quarter. If only some are missing, that is a bug.
func (a *account) findArchived() {
	kept := make(map[string]bool)
	for _, c := range a.history {
		kept[c.TxID] = true
	}
	for _, v := range a.versions {
		kept[v.TxID] = kept[v.TxID] || v.Raw != nil
	}
	a.archived = make(map[string]bool)
	for _, t := range a.txs {
		a.archived[t.ID] = t.State.Terminal() && t.Payload == nil && !kept[t.ID]
	}
}

// declared reports whether the test itself used the nonce.
func (a *account) declared(n uint64) bool { return slices.Contains(a.foreign, n) }

// unread reports whether t ended in a block above the blocks read. The chain grew between the reading
// of the chain and of the database.
func (a *account) unread(t managed) bool {
	return !a.settled && t.Receipt != nil && t.Receipt.BlockNumber > a.head
}

// shaken reports whether PROTECT was opened after t had ended. A reorg deeper than finality opens it.
// Then t keeps its state and receipt, is sent again, and can be mined in another block.
func (a *account) shaken(t managed) bool {
	return t.EndedAt != nil && a.LastProtectAt != nil && a.LastProtectAt.After(*t.EndedAt)
}

// mayBeMissing reports whether the chain can lack t, which ended as mined. Either its block was not
// read, or PROTECT is recovering it after a reorg.
func (a *account) mayBeMissing(t managed) bool {
	return a.unread(t) || (a.shaken(t) && !a.settled)
}

type managed struct {
	ID        string
	RequestID string
	Payload   []byte // nil: archived, or there was none
	Handler   string // made the transaction out of the payload; "": the payload is the transaction
	State     txmanager.State
	Sub       txmanager.SubState
	Nonce     *uint64
	Receipt   *txmanager.Receipt
	EndedAt   *time.Time // confirmed_at of transactions that ended as mined

	Reservation   txmanager.ReservationState // "": it is no reservation
	RecordedNonce *uint64                    // the nonce of the transaction that a release recorded for it
	Seq           int64                      // its place in the queue
	Caller        string                     // as stored
}

// minedAt returns the nonce at which the chain has the transaction of t's end.
func (t managed) minedAt() *uint64 {
	if t.RecordedNonce != nil {
		return t.RecordedNonce
	}
	return t.Nonce
}

// passedOn reports whether t is a reservation whose nonce was allocated again.
func (t managed) passedOn() bool {
	return t.Reservation == txmanager.Recyclable && t.State == txmanager.Failed && t.Sub == txmanager.Cancelled
}

// ended returns the state as messages name it, such as "FAILED/REVERTED".
func (t managed) ended() string { return stateName(t.State, t.Sub) }

func stateName(s txmanager.State, sub txmanager.SubState) string {
	if sub == "" {
		return string(s)
	}
	return string(s) + "/" + string(sub)
}
