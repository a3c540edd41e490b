// Package chaintest is the contract of [txmanager.ChainConnector] as tests, for every implementation and every
// chain. It defines what each answer means, in particular *not found*, no answer, and *twice*.
package chaintest

import (
	"crypto/ecdsa"
	"fmt"
	"math/big"
	"reflect"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Fixture is a separate chain for one test, with nothing pending, and a way to connect to it. A chain needs
// no more than this to be tested.
type Fixture struct {
	URL      string // the node's JSON-RPC over HTTP; "": another protocol
	ChainID  uint64
	Key      *ecdsa.PrivateKey // of an EVM account with at least 10 ether and no transaction; nil: Family
	Family   *Family           // of a chain that is not of the EVM; nil: the EVM's
	Mine     func(n int) error // adds n blocks with the pending transactions; no other call adds one
	DropPool func() error      // removes the pending transactions
	SyncPool func() error      // waits until the pending transactions count; nil: they do at once

	// Reorg replaces the last len(blocks) blocks by as many others in one step. Each has exactly these raw
	// transactions.
	Reorg func(blocks ...[][]byte) error

	// Nodes may differ in these.
	ReorgReturns    bool              // a reorg makes removed transactions pending again (go-ethereum); else they are gone (anvil)
	BumpPercent     int64             // how much more a replacement must pay at least (go-ethereum 10, anvil 1)
	KeepsStates     bool              // of all blocks of a test (anvil); else of the last 128 (go-ethereum)
	EndlessEstimate txmanager.Outcome // of a deployment that exceeds any gas limit: Refused (go-ethereum), or Unknown (anvil names no limit)
	PoorEstimate    txmanager.Outcome // of a transfer above the account's balance: Unknown (go-ethereum), or Done (anvil does not check it)

	// Connect returns the connector under test for a node of chainID at url.
	Connect func(t *testing.T, url string, chainID uint64, timeout time.Duration) txmanager.ChainConnector
}

// Family is what a test needs of a family of chains.
type Family struct {
	chain.Family
	Account    Account        // with at least 10^24 of the smallest unit, and no transaction
	NewAccount func() Account // another one, without money
	Failing    txmanager.Call // is included, and fails
	RoundTrips func() uint64  // of all connectors
	OneFee     bool           // the fee is one number
}

// Account is an account whose key a test has.
type Account struct {
	Submitter txmanager.Submitter
	Sign      func(txmanager.Unsigned) (txmanager.Signed, error)
	key       *ecdsa.PrivateKey // nil: not of the EVM
}

// Run runs the contract. newFixture is called once for each test. For a fixture without a URL the tests
// that distort a JSON-RPC answer, or count JSON-RPC calls, are skipped.
func Run(t *testing.T, newFixture func(t *testing.T) Fixture) {
	runEach[contract](t, newFixture)
	runEach[overJSONRPC](t, func(t *testing.T) Fixture {
		f := newFixture(t)
		if f.URL == "" {
			t.Skip("It needs a node with JSON-RPC")
		}
		return f
	})
}

// runEach runs each method of Tests as a test of its name.
func runEach[Tests ~struct{ *bundle }](t *testing.T, newFixture func(t *testing.T) Fixture) {
	if n, all := reflect.TypeFor[Tests]().NumMethod(), reflect.TypeFor[*Tests]().NumMethod(); n == 0 || n != all {
		t.Fatalf("tests: got %d of the %d exported methods, want all: give each a receiver that is no pointer", n, all)
	}
	for method := range reflect.TypeFor[Tests]().Methods() {
		test := method.Func.Interface().(func(Tests, *testing.T))
		t.Run(method.Name, func(t *testing.T) {
			t.Parallel()
			test(Tests{setup(t, newFixture(t))}, t)
		})
	}
}

// contract has the tests for a node of any protocol, and overJSONRPC those that distort the answers of a JSON-RPC
// node, or count its calls. Each exported method is one test.
type (
	contract    struct{ *bundle }
	overJSONRPC struct{ *bundle }
)

// patience is the time-out of connectors whose answers are expected.
const patience = 20 * time.Second

type bundle struct {
	Fixture
	proxy     *Proxy
	connector txmanager.ChainConnector // through proxy
	submitter txmanager.Submitter
	sign      func(txmanager.Unsigned) (txmanager.Signed, error)
}

func setup(t *testing.T, f Fixture) *bundle {
	t.Helper()
	b := &bundle{Fixture: f}
	if f.URL != "" {
		b.proxy = NewProxy(t, f.URL)
	}
	if f.Key != nil {
		b.Family = &Family{
			Family: evm.Family{}, Account: evmAccount(t, f.ChainID, f.Key), RoundTrips: b.proxy.RoundTrips,
			NewAccount: func() Account { return evmAccount(t, f.ChainID, check.Value(crypto.GenerateKey())(t)) },
			Failing:    txmanager.Call{Value: new(big.Int), Data: revert},
		}
	}
	b.as(b.Family.Account)
	b.connectAnew(t)
	return b
}

func (b *bundle) as(a Account) { b.submitter, b.sign, b.Key = a.Submitter, a.Sign, a.key }

// other returns the bundle of another account of the same chain.
func (b *bundle) other() *bundle {
	other := *b
	other.as(b.Family.NewAccount())
	return &other
}

// connectAnew makes a connector without state of earlier answers. Its first query finds out what the node
// offers, and may take one more round trip.
func (b *bundle) connectAnew(t *testing.T) {
	t.Helper()
	b.connector = b.connect(t, b.ChainID, patience)
	b.query(t, txmanager.ChainQuery{})
}

func (b *bundle) connect(t *testing.T, chainID uint64, timeout time.Duration) txmanager.ChainConnector {
	t.Helper()
	url := ""
	if b.proxy != nil {
		url = b.proxy.URL
	}
	return b.Connect(t, url, chainID, timeout)
}

// onChain returns the account's submitter on another chain.
func (b *bundle) onChain(id uint64) txmanager.Submitter {
	return txmanager.NewSubmitter(b.submitter.Namespace(), id, b.submitter.Address())
}

// to is a new account.
func (b *bundle) to() *txmanager.Address { return new(b.Family.NewAccount().Submitter.Address()) }

// fails makes tx one that is included and fails.
func (b *bundle) fails(tx *txmanager.Unsigned) {
	call := b.Family.Failing
	tx.To, tx.Value, tx.Data = call.To, call.Value, call.Data
}

// tx is a transfer of 1 wei at 10 gwei. edit changes it before it is signed.
func (b *bundle) tx(t *testing.T, n uint64, edit func(*txmanager.Unsigned)) txmanager.Signed {
	t.Helper()
	tx := txmanager.Unsigned{ChainID: b.ChainID, Nonce: n, To: b.to(), Value: big.NewInt(1), Gas: 100_000, FeeCapWei: big.NewInt(10e9), TipCapWei: big.NewInt(1e9)}
	if edit != nil {
		edit(&tx)
	}
	if b.Family.OneFee {
		tx.Legacy, tx.TipCapWei = true, tx.FeeCapWei
	}
	return check.Value(b.sign(tx))(t)
}

// evmAccount is the account of a key on an EVM chain.
func evmAccount(t *testing.T, chainID uint64, key *ecdsa.PrivateKey) Account {
	s := eip155.NewSubmitter(chainID, eip155.Address(crypto.PubkeyToAddress(key.PublicKey)))
	local := check.Value(signer.NewLocal(map[txmanager.Submitter]*ecdsa.PrivateKey{s: key}))(t)
	return Account{Submitter: s, key: key, Sign: func(tx txmanager.Unsigned) (txmanager.Signed, error) { return local.Sign(t.Context(), s, tx) }}
}

// Transfer signs a transfer of the key's account to one without a key, which pays a tip of tipWei.
func Transfer(t testing.TB, key *ecdsa.PrivateKey, chainID, nonce uint64, tipWei int64) txmanager.Signed {
	t.Helper()
	return Sign(t, key, chainID, &types.DynamicFeeTx{Nonce: nonce, To: &common.Address{1}, Gas: 21_000, GasFeeCap: big.NewInt(100e9), GasTipCap: big.NewInt(tipWei)})
}

// Sign signs a transaction for an EVM chain. A transaction without a chain id gets that of the chain.
func Sign(t testing.TB, key *ecdsa.PrivateKey, chainID uint64, tx types.TxData) txmanager.Signed {
	t.Helper()
	signed := check.Value(types.SignNewTx(key, types.LatestSignerForChainID(new(big.Int).SetUint64(chainID)), tx))(t)
	return txmanager.Signed{Hash: txmanager.Hash(signed.Hash()), Raw: check.Value(signed.MarshalBinary())(t)}
}

func (b *bundle) send(t *testing.T, txs ...txmanager.Signed) []txmanager.SendResult {
	t.Helper()
	results := b.connector.Send(t.Context(), raws(txs))
	if got, want := len(results), len(txs); got != want {
		t.Fatalf("results: got %d, want %d", got, want)
	}
	if b.SyncPool != nil {
		check.OK(t)(b.SyncPool())
	}
	return results
}

// mustSend sends and requires each transaction to be accepted.
func (b *bundle) mustSend(t *testing.T, txs ...txmanager.Signed) {
	t.Helper()
	for i, r := range b.send(t, txs...) {
		wantClass(t, r, txmanager.SendAccepted)
		if t.Failed() {
			t.Fatalf("transaction %d was not accepted", i)
		}
	}
}

// include sends transactions, and adds n blocks: the first has them.
func (b *bundle) include(t *testing.T, n int, txs ...txmanager.Signed) {
	t.Helper()
	b.mustSend(t, txs...)
	b.mine(t, n)
}

func (b *bundle) mine(t *testing.T, n int) {
	t.Helper()
	check.OK(t)(b.Mine(n))
}

func (b *bundle) query(t *testing.T, q txmanager.ChainQuery) txmanager.ChainObservation {
	t.Helper()
	q.Submitter = b.submitter
	v, err := b.connector.Query(t.Context(), q)
	if err != nil {
		t.Fatalf("query: %v", err)
	}
	return v
}

// wantNoObservation queries and requires an error.
func (b *bundle) wantNoObservation(t *testing.T, why string, q txmanager.ChainQuery) error {
	t.Helper()
	q.Submitter = b.submitter
	v, err := b.connector.Query(t.Context(), q)
	if err == nil {
		t.Errorf("query with %s: got %+v, want an error", why, v)
	}
	return err
}

func wantClass(t *testing.T, r txmanager.SendResult, want txmanager.SendClass) {
	t.Helper()
	check.Equal(t, fmt.Sprintf("class (%q)", r.Text), r.Class, want)
	check.Equal(t, "the node has a name", r.Node != "", true)
}
