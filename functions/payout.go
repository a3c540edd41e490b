package functions

import (
	"slices"

	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// refundsFinality returns the finality that decides whether payouts are offered. A payer can be on any
// served chain. One chain whose finality is too weak for refunds therefore turns payouts off. For a
// single payout its payer's chain decides: see [App.payerChainOf].
func refundsFinality(c config.Config) (txmanager.Finality, uint64) {
	served := c.Served()
	i := slices.IndexFunc(served, func(of config.ServedChain) bool {
		return of.Finality == txmanager.BySafe || of.Finality == txmanager.ByConfirmations && of.Confirmations == 0
	})
	of := served[max(i, 0)]
	return of.Finality, uint64(of.Confirmations)
}

// payoutLedger returns the chains as a ledger. It is off if the deployment's finality is too weak for
// refunds.
func (a *App) payoutLedger(transfers payout.Transfers) *payout.Ledger {
	finality, confirmations := refundsFinality(a.config)
	l := payout.New(payout.Options{
		Transfers: transfers, Families: a.base.Families, Manager: a.store, Tasks: a.base.Tasks, QueueBound: a.config.Intents.MaxQueued,
		ChainOf: a.payerChainOf, Finality: finality, Confirmations: confirmations,
		Log: a.base.Log, At: a.base.Points,
	})
	if err := l.Off(); err != nil {
		a.base.Log.Warn("no payouts are offered", "error", err.Error())
	}
	return l
}

func (a *App) payerChainOf(s txmanager.Submitter) (payout.PayerChain, error) {
	c, err := a.base.ChainOf(s)
	if err != nil {
		return payout.PayerChain{}, err
	}
	return payout.PayerChain{Chain: c.Connector, Finality: c.Finality, Confirmations: uint64(c.Confirmations)}, nil
}
