package payout_test

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/worker"
)

var families = chain.NewFamilies(evm.Family{})

const (
	user          = int64(7)
	address       = "0x00000000000000000000000000000000000000c3"
	confirmations = 3
	maxGas        = 300_000
)

// coin is the chain's own coin. token gets its contract in each test.
var (
	coin  = transfer.Asset{ID: 1, Name: "ETH", Precision: 8, MinUnits: 1, MaxUnits: 1e15, Active: true}
	token = transfer.Asset{ID: 2, Name: "USDT", Precision: 6, MinUnits: 1, MaxUnits: 1e15, Active: true}
)

// env is a real Postgres, a real chain, a worker of the transaction manager, and a coordinator with
// the ledger under test.
type env struct {
	t  testing.TB
	db storetest.Bundle
	*transfers.Store
	funding     *funding.Ledger
	chain       *devchain.Chain
	client      *ethclient.Client
	connector   *evm.Connector
	payer       txmanager.Submitter
	worker      *worker.Worker
	manager     *manager
	ledger      *payout.Ledger
	coordinator *transfer.Coordinator
	log         *lines
	tasks       *enqueuer
}

// The first of accounts pays, the second is a second payer, the third deploys.
var accounts = devchain.DevAccounts(4)

func newEnv(t testing.TB) *env {
	t.Helper()
	chain := check.Value(devchain.Start(t.Context(), devchain.Options{}))(t)
	t.Cleanup(func() { _ = chain.Close() })
	client := check.Value(ethclient.Dial(chain.URL()))(t)
	t.Cleanup(client.Close)
	h := &env{t: t, db: storetest.New(t), chain: chain, client: client, log: &lines{}, tasks: &enqueuer{}}
	h.Store, h.funding = transfers.New(h.db.Store), funding.New(h.db.DB)
	h.payer = h.pays(accounts[0], store.PayoutCaller)
	h.manager = &manager{Store: h.db.Store}
	h.openWorker()
	h.ledger = h.newLedger(100)
	h.openCoordinator()
	h.asset(coin, "", h.payer)
	return h
}

// newFunded is [newEnv] with the user's account of the coin.
func newFunded(t testing.TB) *env {
	t.Helper()
	h := newEnv(t)
	h.fund(coin)
	return h
}

// newDue is [newFunded] with a payout in TARGET_PENDING that was withdrawn and never posted.
func newDue(t testing.TB) (*env, transfer.Transfer) {
	t.Helper()
	h := newFunded(t)
	return h, h.due(coin)
}

// pays registers an account for the given callers.
func (h *env) pays(a devchain.Account, callers ...string) txmanager.Submitter {
	h.t.Helper()
	s := eip155.NewSubmitter(h.chain.ChainID(), a.Address)
	check.OK(h.t)(h.db.Store.Register(h.t.Context(), store.Registration{Submitter: s, Signer: "local", MaxInFlight: 4, Callers: callers, CreatedBy: "test"}))
	return s
}

func (h *env) openWorker() {
	h.t.Helper()
	connector := check.Value(evm.New(evm.Options{URL: h.chain.URL(), ChainID: h.chain.ChainID()}))(h.t)
	h.t.Cleanup(connector.Close)
	h.connector = connector
	keys := map[txmanager.Submitter]*ecdsa.PrivateKey{}
	for _, a := range accounts[:2] {
		keys[eip155.NewSubmitter(h.chain.ChainID(), a.Address)] = a.Key
	}
	local := check.Value(signer.NewLocal(keys))(h.t)
	h.worker = &worker.Worker{
		Service: session.Service{
			Store: h.db.Store, ChainOf: func(txmanager.Submitter) (txmanager.ChainConnector, error) { return connector, nil }, Tasks: h.tasks,
			Rules: rules.Rules{
				Limits:       gas.Limits{MaxFeePerGasWei: big.NewInt(1e12), PlaceholderFeeCapWei: big.NewInt(1e12)},
				Finality:     rules.Finality{By: txmanager.ByConfirmations, Confirmations: confirmations, BlockTime: 100 * time.Millisecond, WatchEvery: time.Minute, WatchDepth: 10},
				Broadcasting: rules.Broadcasting{Resubmit: true, ResubmitEvery: time.Hour, MaxResubmits: 10, StuckAfter: time.Hour},
			},
			Timing: session.Timing{Lease: storetest.Rules, CallTimeout: 5 * time.Second, IterationsEndAfter: 30 * time.Second},
			Node:   "test", Log: slog.New(slog.DiscardHandler),
		},
		SignerNamed: func(string) txmanager.Signer { return local },
	}
}

// finalBy is a chain with a rule, of every payer.
func finalBy(chain payout.Chain, mode txmanager.Finality, confirmations uint64) func(txmanager.Submitter) (payout.PayerChain, error) {
	return func(txmanager.Submitter) (payout.PayerChain, error) {
		return payout.PayerChain{Chain: chain, Finality: mode, Confirmations: confirmations}, nil
	}
}

func (h *env) newLedger(bound int) *payout.Ledger {
	h.t.Helper()
	return payout.New(payout.Options{
		Families:  families,
		Transfers: h.Store, Manager: h.manager, Tasks: h.tasks, QueueBound: bound,
		ChainOf:  finalBy(h.connector, txmanager.ByConfirmations, confirmations),
		Finality: txmanager.ByConfirmations, Confirmations: confirmations, Log: telemetry.NewLogger(h.log, slog.LevelDebug, ""),
	})
}

// openCoordinator opens a coordinator between Funding and the chain, without Spot.
func (h *env) openCoordinator() {
	h.t.Helper()
	all := map[transfer.AccountType]transfer.Ledger{transfer.Funding: h.funding, transfer.Spot: h.funding, transfer.Chain: h.ledger}
	c := check.Value(transfer.New(h.Store, h.Store, all, transfer.DefaultRules(), telemetry.NewLogger(h.log, slog.LevelDebug, "")))(h.t)
	h.coordinator = c
}

// asset stores a with the contract, paid by s.
func (h *env) asset(a transfer.Asset, contract string, s txmanager.Submitter) {
	h.t.Helper()
	a.Payout = &transfer.PayoutTerms{Submitter: string(s), ChainID: h.chain.ChainID(), Token: contract, Decimals: 18}
	check.OK(h.t)(h.PutAsset(h.t.Context(), a))
}

// fund creates the user's account with 10 of the asset.
func (h *env) fund(a transfer.Asset) {
	h.t.Helper()
	succeeds(h.t, h.funding.OutsideDeposit(h.t.Context(), transfer.Call{ReqID: "in of " + a.Name, UserID: user, AssetID: a.ID, Units: ten(a)}))
}

func ten(a transfer.Asset) uint64 {
	units := uint64(10)
	for range a.Precision {
		units *= 10
	}
	return units
}

// has checks the user's balance in Funding, without trailing zeros.
func (h *env) has(a transfer.Asset, want string) {
	h.t.Helper()
	var available string
	check.OK(h.t)(h.db.DB.QueryRow(h.t.Context(), `select trim_scale(available)::text from balances_tb where user_id = $1 and asset_id = $2`,
		user, a.ID).Scan(&available))
	check.Equal(h.t, "Funding", available, want)
}

// request returns a payout of 1.5 to the address, as the API would make it.
func (h *env) request(a transfer.Asset) transfer.Request {
	h.t.Helper()
	known, err := h.Asset(h.t.Context(), a.Name)
	if err != nil || known == nil {
		h.t.Fatalf("asset %s: %v, %v", a.Name, known, err)
	}
	amount, _ := transfer.ParseAmount("1.5")
	units, _ := amount.Units(a.Precision)
	p := check.Value(payout.Prepare(families, *known, units, address, maxGas))(h.t)
	return transfer.Request{ReqID: ulid.Make().String(), UserID: user, From: transfer.Funding, To: transfer.Chain, Asset: a.Name, Amount: amount, Payout: p}
}

var terms = transfer.Terms{SafetyFactor: 10}

// stored returns a payout in INIT.
func (h *env) stored(a transfer.Asset) transfer.Transfer {
	h.t.Helper()
	c, err := h.Create(h.t.Context(), h.request(a), terms)
	if err != nil || !c.New {
		h.t.Fatalf("create: got %+v, %v; want it new", c, err)
	}
	return c.Transfer
}

// due returns a payout in TARGET_PENDING that was withdrawn and never posted.
func (h *env) due(a transfer.Asset) transfer.Transfer {
	h.t.Helper()
	x := h.stored(a)
	succeeds(h.t, h.funding.Withdraw(h.t.Context(), x.Call()))
	m, err := h.Move(h.t.Context(), transfer.Transition{ReqID: x.ReqID, Path: []transfer.State{transfer.Init, transfer.SourcePending, transfer.SourceDone, transfer.TargetPending}})
	if err != nil || !m.Done {
		h.t.Fatalf("move: %+v, %v", m, err)
	}
	return m.Now
}

// drive drives the transfer and requires the wanted state.
func (h *env) drive(reqID string, want transfer.State) transfer.Transfer {
	h.t.Helper()
	got, err := h.coordinator.Drive(h.t.Context(), reqID)
	if err != nil || got.State != want {
		h.t.Fatalf("drive: got %s (%s, %s), %v; want %s", got.State, got.Reason, got.LastUnknown, err, want)
	}
	return got
}

// giveUp resolves the payout as an operator.
func (h *env) giveUp(reqID string) transfer.Transfer {
	h.t.Helper()
	action := transfer.RequestedAction{ReqID: reqID, By: "ann", Reason: "asked"}
	return check.Value(h.coordinator.Resolve(h.t.Context(), action, transfer.Deposit))(h.t)
}

func refused(t testing.TB, o transfer.Outcome, want transfer.Reason) {
	t.Helper()
	check.Equal(t, "outcome", o, transfer.Outcome{Verdict: transfer.Refused, Reason: want})
}

// wantUnknown asks the ledger for the deposit of x, and requires that its outcome is unknown.
func (h *env) wantUnknown(x transfer.Transfer, cause error) {
	h.t.Helper()
	unknown(h.t, h.ledger.Deposit(h.t.Context(), x.Call()), cause)
}

func unknown(t testing.TB, o transfer.Outcome, cause error) {
	t.Helper()
	if o.Verdict != transfer.Unknown || !errors.Is(o.Err, cause) {
		t.Errorf("got %s %s, %v; want UNKNOWN because of %v", o.Verdict, o.Reason, o.Err, cause)
	}
}

func succeeds(t testing.TB, o transfer.Outcome) {
	t.Helper()
	check.Equal(t, "outcome", o, transfer.Outcome{Verdict: transfer.Success})
}

// intentOf returns the intent that the ledger posts for x.
func (h *env) intentOf(x transfer.Transfer) store.Intent {
	return store.Intent{
		TxID: uuid.NewString(), Submitter: txmanager.Submitter(x.Payout.Submitter), RequestID: x.ReqID, Caller: store.PayoutCaller,
		Payload: x.Payout.Payload, Fingerprint: sha256.Sum256(x.Payout.Payload),
	}
}

// states returns the history of a transfer, as ids.
func (h *env) states(reqID string) string {
	h.t.Helper()
	story := check.Value(h.Why(h.t.Context(), reqID))(h.t)
	var all []string
	for _, s := range story.History {
		all = append(all, fmt.Sprint(int16(s.State)))
	}
	return strings.Join(all, " ")
}

// unguarded lets a test change the payer while a payout is open, as a build before migration 0019 could.
func (h *env) unguarded() {
	h.t.Helper()
	check.OK(h.t)(h.db.DB.Exec(h.t.Context(), `alter table assets_tb disable trigger guard_asset_terms`))
}
