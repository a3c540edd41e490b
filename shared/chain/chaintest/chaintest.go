// Package chaintest is the contract of [txmanager.ChainConnector] as tests, for every implementation and every
// chain. It defines what each answer means, in particular *not found*, no answer, and *twice*.
package chaintest

import (
	"crypto/ecdsa"
	"math/big"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// Fixture is a separate chain for one test, with nothing pending, and a way to connect to it. A chain needs
// no more than this to be tested.
type Fixture struct {
	URL      string            // the node's JSON-RPC over HTTP
	ChainID  uint64            // EIP-155
	Key      *ecdsa.PrivateKey // of an account with at least 10 ether and no transaction
	Mine     func(n int) error // adds n blocks with the pending transactions; no other call adds one
	DropPool func() error      // removes the pending transactions

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

// Run runs the contract. newFixture is called once for each test.
func Run(t *testing.T, newFixture func(t *testing.T) Fixture) {
	for name, test := range map[string]func(*testing.T, *bundle){
		"EmptyQueryReturnsTheHead":     testEmptyQueryReturnsTheHead,
		"Account":                      testAccount,
		"AccountWithCode":              testAccountWithCode,
		"ReceiptFoundNotFound":         testReceiptFoundNotFound,
		"ReceiptUnknown":               testReceiptUnknown,
		"RevertedReceipt":              testRevertedReceipt,
		"KnownPendingThenDropped":      testKnownPendingThenDropped,
		"HeadersLinked":                testHeadersLinked,
		"HeadersNotLinked":             testHeadersNotLinked,
		"EstimateDoneRefusedUnknown":   testEstimates,
		"OneRoundTrip":                 testOneRoundTrip,
		"QueryFailsAsAWhole":           testQueryFailsAsAWhole,
		"WrongChain":                   testWrongChain,
		"SendTwice":                    testSendTwice,
		"SendInOrder":                  testSendInOrder,
		"NonceTooLow":                  testNonceTooLow,
		"ReplacementUnderpriced":       testReplacementUnderpriced,
		"InsufficientFunds":            testInsufficientFunds,
		"SilenceAfterAcceptance":       testSilenceAfterAcceptance,
		"UnknownWordsAndWrongHash":     testUnknownWords,
		"TagsAreInTheHeadsChain":       testTags,
		"ChainChanged":                 testChainChanged,
		"ReorgRemovesAReceipt":         testReorgRemovesAReceipt,
		"ReorgMovesAReceipt":           testReorgMovesAReceipt,
		"ReorgLosesATransaction":       testReorgLosesATransaction,
		"ReorgReplacesATransaction":    testReorgReplacesATransaction,
		"ReceiptComesAndGoes":          testReceiptComesAndGoes,
		"ReorgUnderPending":            testReorgUnderPending,
		"Replaced":                     testReplaced,
		"NonceGap":                     testNonceGap,
		"Consumed":                     testConsumed,
		"NotConsumed":                  testNotConsumed,
		"ConsumedOnAPrunedNode":        testConsumedOnAPrunedNode,
		"ConsumedBelowTheKeptStates":   testConsumedBelowTheKeptStates,
		"ConsumedAfterReorg":           testConsumedAfterReorg,
		"ConsumedDuringReorg":          testConsumedDuringReorg,
		"WrongConsumptionIsRejected":   testWrongConsumptionIsRejected,
		"ConsumedByAnAuthorization":    testConsumedByAnAuthorization,
		"ConsumedAmongMillions":        testConsumedAmongMillions,
		"Blocks":                       testBlocks,
		"BlocksOnAPrunedNode":          testBlocksOnAPrunedNode,
		"BlocksFromATime":              testBlocksFromATime,
		"FaultyBlocks":                 testFaultyBlocks,
		"Watch":                        testWatch,
		"FaultyWatchedBlocks":          testFaultyWatchedBlocks,
		"WatchAboveTheHead":            testWatchAboveTheHead,
		"WatchAfterReorg":              testWatchAfterReorg,
		"WindowInOneBlock":             testWindowInOneBlock,
		"WindowInManyBlocks":           testWindowInManyBlocks,
		"WindowPending":                testWindowPending,
		"WindowReplaced":               testWindowReplaced,
		"WindowAfterReorg":             testWindowAfterReorg,
		"WindowWithoutBlockReceipts":   testWindowWithoutBlocks,
		"FaultyBlockReceipts":          testFaultyBlockReceipts,
		"WindowDuringNewBlocks":        testWindowDuringNewBlocks,
		"ReceiptOutsideTheObservation": testReceiptOutsideTheObservation,
		"WindowOnALaggingNode":         testWindowOnALaggingNode,
		"LaggingNode":                  testLaggingNode,
		"LaggingNodeAtASharedAddress":  testLaggingNodeBehindOneAddress,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, setup(t, newFixture(t)))
		})
	}
}

// patience is the time-out of connectors whose answers are expected.
const patience = 20 * time.Second

type bundle struct {
	Fixture
	proxy     *Proxy
	connector txmanager.ChainConnector // through proxy
	submitter txmanager.Submitter
	signer    types.Signer
}

func setup(t *testing.T, f Fixture) *bundle {
	t.Helper()
	b := &bundle{Fixture: f, proxy: NewProxy(t, f.URL)}
	b.submitter = txmanager.NewSubmitter(f.ChainID, txmanager.Address(crypto.PubkeyToAddress(f.Key.PublicKey)))
	b.signer = types.LatestSignerForChainID(new(big.Int).SetUint64(f.ChainID))
	b.connectAnew(t)
	return b
}

// connectAnew makes a connector without state of earlier answers. Its first query finds out what the node
// offers, and may take one more round trip.
func (b *bundle) connectAnew(t *testing.T) {
	t.Helper()
	b.connector = b.Connect(t, b.proxy.URL, b.ChainID, patience)
	b.query(t, txmanager.ChainQuery{})
}

// tx is a transfer of 1 wei at 10 gwei. edit changes it before it is signed.
func (b *bundle) tx(t *testing.T, n uint64, edit func(*types.DynamicFeeTx)) txmanager.Signed {
	t.Helper()
	inner := &types.DynamicFeeTx{ChainID: new(big.Int).SetUint64(b.ChainID), Nonce: n, To: &common.Address{0xfe},
		Value: big.NewInt(1), Gas: 100_000, GasFeeCap: big.NewInt(10e9), GasTipCap: big.NewInt(1e9)}
	if edit != nil {
		edit(inner)
	}
	signed, err := types.SignNewTx(b.Key, b.signer, inner)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := signed.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return txmanager.Signed{Hash: txmanager.Hash(signed.Hash()), Raw: raw}
}

func (b *bundle) send(t *testing.T, txs ...txmanager.Signed) []txmanager.SendResult {
	t.Helper()
	raws := make([][]byte, len(txs))
	for i, tx := range txs {
		raws[i] = tx.Raw
	}
	results := b.connector.Send(t.Context(), raws)
	if got, want := len(results), len(txs); got != want {
		t.Fatalf("results: got %d, want %d", got, want)
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

func (b *bundle) mine(t *testing.T, n int) {
	t.Helper()
	if err := b.Mine(n); err != nil {
		t.Fatal(err)
	}
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
	if r.Class != want {
		t.Errorf("class: got %s (%q), want %s", r.Class, r.Text, want)
	}
	if r.Node == "" {
		t.Error("node: got none, want its name")
	}
}
