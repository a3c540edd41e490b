package functions

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/functions/counted"
	usertransfers "github.com/fencepost/fencepost/functions/transfers"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	checks "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

// transferParts holds the parts that transfers between ledgers need.
type transferParts struct {
	store *transfers.Store
	rules transfer.Rules

	// Nil in a deployment without a trading core, which offers no transfers.
	server  *usertransfers.Server
	trading *trading.Ledger
	checks  *checks.Book
	payouts *payout.Ledger
}

// requiredForTransfers lists the settings that every transfer needs.
var requiredForTransfers = []string{"trading.url", "trading.secret", "auth.usersIssuer", "auth.usersJwksUrl", "auth.usersAudience"}

// openTransfers makes the parts. Without a trading core a process that serves only transfers does not
// start. The sweep runs without one.
func (a *App) openTransfers() error {
	a.transfers = transferParts{store: transfers.New(a.store.Store), rules: transferRules(a.config)}
	switch a.config.Platform.FunctionTarget {
	case "transfer", "conservation":
	default:
		if a.config.Trading.URL == "" {
			return nil
		}
	}
	if err := a.config.Require(requiredForTransfers...); err != nil {
		return err
	}
	return a.openLedgers(&a.transfers)
}

func (a *App) openLedgers(p *transferParts) (err error) {
	if p.trading, err = a.tradingLedger(); err != nil {
		return err
	}
	users, err := web.NewVerifier(web.VerifierOptions{
		Issuer: a.config.Auth.UsersIssuer, JWKSURL: a.config.Auth.UsersJWKSURL, Audience: a.config.Auth.UsersAudience,
	})
	if err != nil {
		return fmt.Errorf("users' tokens: %w", err)
	}
	money := funding.NewInLane(a.store.Pool(), p.store.Lane())
	p.payouts, p.checks = a.payoutLedger(p.store), checks.New(a.store.Pool())
	ledgers := map[transfer.AccountType]transfer.Ledger{transfer.Funding: money, transfer.Spot: p.trading, transfer.Chain: p.payouts}
	book := counted.Transfers{Store: p.store}
	coordinator, err := transfer.New(book, book, ledgers, p.rules, a.base.Log)
	if err != nil {
		return err
	}
	monitor := a.monitor(p.checks, money, p.trading)
	coordinator.At, coordinator.Stopping, coordinator.Proof = a.base.Points, a.gate.Stopping, p.proof
	acts := &transfer.Accounts{
		Store: p.store, Ledgers: map[transfer.AccountType]transfer.OutsideLedger{transfer.Funding: money, transfer.Spot: p.trading}, Core: p.trading,
		Timeout: a.config.Transfer.CallTimeout, At: a.base.Points.At,
	}
	p.server = &usertransfers.Server{
		Base: a.base, Acts: acts, Spot: p.trading.Balance, Users: users, Store: p.store, Coordinator: coordinator, Monitor: monitor,
		Terms: a.config.Transfer.Terms, RetryFirst: p.rules.RetryFirst, PayoutMaxGas: a.config.Transfer.PayoutMaxGas, Pays: p.payouts.Off() == nil,
	}
	return nil
}

// tradingTimeout bounds the reading of the trading core's journal. The core's operations are bounded
// by transfer.callTimeout.
const tradingTimeout = 10 * time.Second

func (a *App) tradingLedger() (*trading.Ledger, error) {
	return trading.New(trading.Options{
		URL: a.config.Trading.URL, Secret: a.config.Trading.Secret.Reveal(), Timeout: max(a.config.Transfer.CallTimeout, tradingTimeout),
	})
}

func (a *App) monitor(book *checks.Book, money *funding.Ledger, core *trading.Ledger) *conservation.Monitor {
	return &conservation.Monitor{
		Book: book, Funding: money, Mode: a.config.Conservation.Halt,
		Trading: conservation.Numbered{Core: core, Balances: balancesOf(core)},
		Payouts: payout.NewJournal(a.base.Families, a.store.Store), Chain: a.chainReader(book),
		Log: a.base.Log, Critical: telemetry.LevelCritical,
		Count: func(ctx context.Context, result string) {
			telemetry.ConservationCheck.Add(ctx, 1, telemetry.Result(result))
		},
	}
}

// chainReader reads payments from the chains; nil if conservation.chainBlocks is 0.
func (a *App) chainReader(book *checks.Book) conservation.Payments {
	if a.config.Conservation.ChainBlocks == 0 {
		return nil
	}
	return &payout.ChainReader{
		Book: book, ChainOf: a.payerChainOf, Blocks: uint64(a.config.Conservation.ChainBlocks), History: a.config.Conservation.ChainHistory,
		Time: a.base.Deadline / 3, Log: a.base.Log,
	}
}

// balancesOf reads the core's balances in the form that the check of conservation takes.
func balancesOf(core *trading.Ledger) func(context.Context) (uint64, map[conservation.Account]conservation.Sum, error) {
	return func(ctx context.Context) (uint64, map[conservation.Account]conservation.Sum, error) {
		line, list, err := core.AllBalances(ctx)
		all := make(map[conservation.Account]conservation.Sum, len(list))
		for _, b := range list {
			all[conservation.Account{UserID: b.UserID, AssetID: b.AssetID}] = conservation.Units(b.Units)
		}
		return line, all, err
	}
}

// transferRules returns the settings that govern transfers.
func transferRules(c config.Config) transfer.Rules {
	r, t := transfer.DefaultRules(), c.Transfer
	r.InitTimeout, r.CallTimeout, r.RescueAfter = t.InitTimeout, t.CallTimeout, t.RescueAfter
	r.RetryFirst, r.RetryMax, r.PayoutRetryMax = t.RetryFirst, t.RetryMost, min(r.PayoutRetryMax, t.RetryMost)
	r.PayoutLimit = 0
	for _, of := range c.Served() { // the rule of the slowest chain
		r.PayoutLimit = max(r.PayoutLimit, payout.Limit(of.Finality, uint64(of.Confirmations), of.BlockTime, 2*t.PayoutFinality))
	}
	return r
}

// proof reports whether the journals contain the operation of t. It first runs a check of conservation
// to read the newest entries; the check's verdict is not used. Proof that a refund is missing also
// requires the journal's withdrawal.
func (p *transferParts) proof(ctx context.Context, t transfer.Transfer, op transfer.Op) (applied bool, err error) {
	if _, err := p.server.Monitor.Check(ctx, false); err != nil {
		return false, err
	}
	e, err := p.checks.EvidenceOf(ctx, t.ReqID)
	if err != nil {
		return false, err
	}
	is, should := *e.SideOf(op), t.Type.Source()
	if op == transfer.Deposit {
		should = t.Type.Target()
	}
	if is != "" && is != should || op == transfer.Refund && e.Debit != should {
		return false, fmt.Errorf("%w: the journals have %s of %s at %q, and its withdrawal at %q", transfer.ErrEvidence, op, t.ReqID, is, e.Debit)
	}
	return is == should, nil
}
