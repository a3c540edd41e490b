package checkers_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/google/uuid"

	"github.com/fencepost/fencepost/emulator/verify/checkers"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// bench is a small episode of two submitters on a real chain and in a real database. The store stored
// everything in it, and the chain mined it.
type bench struct {
	testing.TB
	storetest.Bundle
	chain   *devchain.Chain
	client  *ethclient.Client
	keys    []devchain.Account // of alice, bob and a foreign signer
	alice   txmanager.Submitter
	bob     txmanager.Submitter
	ids     map[string]string // by requestId
	tenures int
	shared  bool // other tests share the chain: no block may be added
	checkers.Run
}

const (
	transfer = `{"to":"0x00000000000000000000000000000000000cafe0","value":"1"}`
	call     = `{"to":"0x00000000000000000000000000000000000cafe0","data":"0x01ff"}`
	reverts  = `{"data":"0xfe"}` // INVALID
)

// setup returns an episode that contains each end once: pay and call are CONFIRMED, then REVERTED,
// PLACEHOLDER, CANCELLED and REJECTED. Bob has a transaction from before his registration.
func setup(t testing.TB) *bench {
	chain := check.Value(devchain.Start(t.Context(), devchain.Options{}))(t)
	client := check.Value(ethclient.Dial(chain.URL()))(t)
	t.Cleanup(func() {
		client.Close()
		if err := chain.Close(); err != nil {
			t.Errorf("close the chain: %v", err)
		}
	})
	b := &bench{TB: t, Bundle: storetest.New(t), chain: chain, client: client, keys: devchain.DevAccounts(3), ids: make(map[string]string)}
	b.alice = eip155.NewSubmitter(chain.ChainID(), b.keys[0].Address)
	b.bob = eip155.NewSubmitter(chain.ChainID(), b.keys[1].Address)
	b.Run = checkers.Run{Database: b.URL, RPC: chain.URL(), Submitters: []txmanager.Submitter{b.alice, b.bob}, Settled: true}
	b.play()
	return b
}

func (b *bench) play() {
	b.mine(b.sign(1, 0, transfer))
	b.Bundle.Register(b, b.alice, 8)
	check.OK(b)(b.Store.Register(b.Context(), store.Registration{
		Submitter: b.bob, Signer: "local", StartNonce: 1, StartReason: "used before", MaxInFlight: 1,
		Callers: []string{"shop"}, CreatedBy: "test",
	}))
	b.carryOut(b.alice, "pay", transfer, txmanager.Confirmed, "")
	b.carryOut(b.alice, "revert", reverts, txmanager.Failed, txmanager.Reverted)
	b.submit(b.alice, "stop", transfer)
	b.finish(b.alice, "stop", b.placeholder("stop", 2), txmanager.Failed, txmanager.Placeholder)
	b.carryOut(b.alice, "call", call, txmanager.Confirmed, "")
	b.carryOut(b.bob, "pay", transfer, txmanager.Confirmed, "")
	b.post(b.alice, "cancelled", transfer)
	b.post(b.alice, "refused", transfer)
	b.move(b.alice, "refused", txmanager.Failed, txmanager.Rejected)
	b.run(`update managed_tx set state = 'FAILED', sub_state = 'CANCELLED' where tx_id = $1`, b.ids["cancelled"])
}

// copyFor returns the same episode for t with a copy of b's database, whose connections it closes.
func (b *bench) copyFor(t testing.TB) *bench {
	t.Helper()
	c := *b
	c.TB, c.Bundle, c.ids, c.shared = t, storetest.Copy(t, b.Bundle), maps.Clone(b.ids), true
	c.Database = c.URL
	return &c
}

// post stores an intent. If two submitters use the same requestId, ids has alice's.
func (b *bench) post(s txmanager.Submitter, requestID, payload string) {
	b.Helper()
	in := store.Intent{TxID: uuid.NewString(), Submitter: s, RequestID: requestID, Caller: "shop",
		Payload: []byte(payload), Fingerprint: sha256.Sum256([]byte(payload))}
	check.OK(b)(b.Create(b.Context(), in, 100))
	if s == b.alice {
		b.ids[requestID] = in.TxID
	}
}

// take begins a separate lease session.
func (b *bench) take(s txmanager.Submitter) txmanager.SubmitterState {
	b.Helper()
	b.tenures++
	taken, err := b.Acquire(b.Context(), s, fmt.Sprintf("a/%d", b.tenures), true)
	if err != nil || !taken.Held {
		b.Fatalf("take the lease of %s: got held %v, error %v; want it held", s, taken.Held, err)
	}
	return taken.State
}

func (b *bench) write(w txmanager.Commit) {
	b.Helper()
	w.LeaseEnd = txmanager.ReleaseUnlessRerun
	done, err := b.Commit(b.Context(), w)
	if err != nil || done.Transitioned != len(w.Transitions) || done.Allocated != len(w.Allocations) || !done.Released {
		b.Fatalf("write: got %+v, error %v; want all of it", done, err)
	}
}

// allocate gives the head of the queue its nonce. It also stores tx as its signed bytes, unless tx is
// nil.
func (b *bench) allocate(s txmanager.Submitter, tx *types.Transaction) {
	b.Helper()
	w := b.take(s)
	one := big.NewInt(1)
	a := txmanager.Allocation{Tx: w.Queue[0], Nonce: w.NextNonce}
	a.Tx.Gas = &txmanager.GasParams{Gas: 21_000, FeeCapWei: one, TipCapWei: one, ValueWei: one}
	if tx != nil {
		a.Signed = &txmanager.Signed{Hash: txmanager.Hash(tx.Hash()), Raw: raw(b, tx)}
	}
	b.write(txmanager.Commit{Lease: w.Lease, Allocations: []txmanager.Allocation{a}})
}

// submit takes an intent to SUBMITTED and returns the transaction that was stored to be sent.
func (b *bench) submit(s txmanager.Submitter, requestID, payload string) *types.Transaction {
	b.Helper()
	b.post(s, requestID, payload)
	view := check.Value(b.Store.Submitter(b.Context(), s))(b)
	tx := b.sign(slices.Index([]txmanager.Submitter{b.alice, b.bob}, s), uint64(view.NextNonce), payload)
	b.allocate(s, tx)
	return tx
}

// placeholder stores a second version of alice's transaction.
func (b *bench) placeholder(requestID string, n uint64) *types.Transaction {
	b.Helper()
	tx := b.sign(0, n, fmt.Sprintf(`{"to":"%s","value":"0"}`, b.alice.Address()))
	b.version(requestID, n, tx, "PLACEHOLDER")
	return tx
}

// version stores a further version of alice's transaction, with any content.
func (b *bench) version(requestID string, n uint64, tx *types.Transaction, kind string) {
	b.Helper()
	b.run(`
with kept as (
  insert into tx_version (tx_hash, tx_id, submitter, nonce, version, kind, fencing_token)
  select $1, $2, $3, $4, 1 + count(*), $5, max(fencing_token) from tx_version where tx_id = $2
  returning tx_id, version
)
insert into tx_document (tx_id, name, body, bytes)
select tx_id, 'version:' || version, '{}', $6 from kept`,
		txmanager.Hash(tx.Hash()).String(), b.ids[requestID], b.alice, int64(n), kind, raw(b, tx))
}

// finish mines tx and makes the transaction terminal with it.
func (b *bench) finish(s txmanager.Submitter, requestID string, tx *types.Transaction, end txmanager.State, sub txmanager.SubState) {
	b.Helper()
	b.mine(tx)
	receipt := check.Value(b.client.TransactionReceipt(b.Context(), tx.Hash()))(b)
	b.move(s, requestID, txmanager.Tracking, txmanager.Pending)
	included := func(t *txmanager.Tx) {
		t.Receipt = &txmanager.Receipt{TxHash: txmanager.Hash(tx.Hash()), BlockHash: txmanager.Hash(receipt.BlockHash),
			BlockNumber: receipt.BlockNumber.Uint64(), Succeeded: receipt.Status == 1}
		t.Confirmations = []txmanager.Header{{Number: receipt.BlockNumber.Uint64(), Hash: txmanager.Hash(receipt.BlockHash)}}
	}
	b.move(s, requestID, txmanager.Tracking, txmanager.Included, included)
	b.move(s, requestID, end, sub)
}

// carryOut takes an intent to its end with the version made for it.
func (b *bench) carryOut(s txmanager.Submitter, requestID, payload string, end txmanager.State, sub txmanager.SubState) {
	b.Helper()
	b.finish(s, requestID, b.submit(s, requestID, payload), end, sub)
}

// move changes a transaction's state in a separate lease session.
func (b *bench) move(s txmanager.Submitter, requestID string, to txmanager.State, sub txmanager.SubState, more ...func(*txmanager.Tx)) {
	b.Helper()
	w := b.take(s)
	all := slices.Concat(w.Open, w.Queue)
	i := slices.IndexFunc(all, func(t txmanager.Tx) bool { return t.RequestID == requestID })
	if i < 0 {
		b.Fatalf("request %s of %s: not among the unfinished", requestID, s)
	}
	t := all[i]
	t.State, t.Sub = to, sub
	for _, change := range more {
		change(&t)
	}
	b.write(txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{{From: all[i].State, To: t}}})
}

// displace ends an unsigned intent as DISPLACED.
func (b *bench) displace(requestID string) {
	b.Helper()
	b.post(b.alice, requestID, transfer)
	b.allocate(b.alice, nil)
	b.move(b.alice, requestID, txmanager.Protect, "")
	b.move(b.alice, requestID, txmanager.Failed, txmanager.Displaced)
}

// sign makes the transaction that the payload asks for at the nonce, with the key of that index.
func (b *bench) sign(key int, n uint64, payload string) *types.Transaction {
	b.Helper()
	return b.signFor(b.chain.ChainID(), key, n, payload)
}

func (b *bench) signFor(chainID uint64, key int, n uint64, payload string) *types.Transaction {
	b.Helper()
	call := check.Value(new(evm.Connector).ParsePayload([]byte(payload)))(b) // as the system does, not as the checkers do
	id := new(big.Int).SetUint64(chainID)
	return types.MustSignNewTx(b.keys[key].Key, types.LatestSignerForChainID(id), &types.DynamicFeeTx{
		ChainID: id, Nonce: n, To: (*common.Address)(eip155.Recipient(call.To)), Value: call.Value, Data: call.Data, Gas: 100_000,
		GasFeeCap: big.NewInt(5e9), GasTipCap: big.NewInt(1e9),
	})
}

// mine adds a block with exactly these transactions.
func (b *bench) mine(txs ...*types.Transaction) {
	b.Helper()
	if b.shared {
		b.Fatal("this bug needs a chain of its own")
	}
	var raws [][]byte
	for _, tx := range txs {
		raws = append(raws, raw(b, tx))
	}
	check.OK(b)(b.chain.MineExactly(raws...))
}

func raw(t testing.TB, tx *types.Transaction) []byte {
	t.Helper()
	return check.Value(tx.MarshalBinary())(t)
}

// run changes at least one row, or a table, past the store.
func (b *bench) run(statement string, args ...any) {
	b.Helper()
	tag, err := b.DB.Exec(b.Context(), statement, args...)
	if err != nil || ((tag.Update() || tag.Insert() || tag.Delete()) && tag.RowsAffected() == 0) {
		b.Fatalf("%s: got %v, error %v; want rows changed", statement, tag, err)
	}
}

// unguarded removes this test database's triggers, checks, foreign keys and unique keys. It keeps the
// unique key of requests, which create needs.
func (b *bench) unguarded() {
	b.Helper()
	b.run(`
do $$
declare
  guard record;
begin
  for guard in
    select conrelid::regclass as of, conname
      from pg_constraint
     where conrelid in ('managed_tx'::regclass, 'tx_version'::regclass, 'submitter_nonce_cursor'::regclass)
       and contype in ('f', 'c', 'u') and conname <> 'one_tx_per_request'
     order by contype = 'u'
  loop
    execute format('alter table %s drop constraint %I', guard.of, guard.conname);
  end loop;
  alter table managed_tx disable trigger user;
  alter table tx_history disable trigger user;
  alter table tx_version disable trigger user;
  alter table tx_document disable trigger user;
  alter table submitter_lease disable trigger user;
  alter table submitter_nonce_cursor disable trigger user;
end
$$`)
}

// check runs every checker.
func (b *bench) check() []checkers.Violation {
	b.Helper()
	return check.Value(checkers.Check(b.Context(), b.Run))(b)
}
