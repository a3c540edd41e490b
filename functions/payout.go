package functions

import (
	"context"
	"net/http"
	"slices"

	"github.com/fencepost/fencepost/functions/counted"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// refundsFinality returns the finality that decides whether payouts are offered. A payer can be on any
// served chain. One chain whose finality is too weak for refunds therefore turns payouts off. For a
// single payout its payer's chain decides: see [App.payoutFinalityOf].
func refundsFinality(c config.Config) (txmanager.Finality, uint64) {
	served := c.Served()
	i := slices.IndexFunc(served, func(of config.ServedChain) bool {
		return of.Finality == config.FinalitySafe || of.Finality == config.FinalityConfirmations && of.Confirmations == 0
	})
	of := served[max(i, 0)]
	return txmanager.Finality(of.Finality), uint64(of.Confirmations)
}

// payoutLedger returns the chains as a ledger. It is off if the deployment's finality is too weak for
// refunds.
func (a *App) payoutLedger(transfers payout.Transfers) *payout.Ledger {
	finality, confirmations := refundsFinality(a.config)
	l := payout.New(payout.Options{
		Transfers: transfers, Manager: a.watched(), Wake: a.tasks, QueueBound: a.config.Queue.MaxPerSubmitter,
		ChainOf: a.payoutChainOf, Finality: finality, Confirmations: confirmations, FinalityOf: a.payoutFinalityOf,
		Log: a.Log, At: a.Points,
	})
	if err := l.Off(); err != nil {
		a.Log.Warn("no payouts are offered", "error", err.Error())
	}
	return l
}

// payoutChain is a payer's chain that counts its queries.
type payoutChain struct {
	counted.Chain
	connector connector
}

// Transaction implements [payout.Chain].
func (c payoutChain) Transaction(ctx context.Context, hash txmanager.Hash) (evm.Transaction, error) {
	return c.connector.Transaction(ctx, hash)
}

func (a *App) payoutChainOf(s txmanager.Submitter) (payout.Chain, error) {
	c, err := a.servedOf(s)
	if err != nil {
		return nil, err
	}
	return payoutChain{counted.Chain{ChainConnector: c.connector}, c.connector}, nil
}

// payoutFinalityOf returns how transactions of the payer's chain become final.
func (a *App) payoutFinalityOf(s txmanager.Submitter) (txmanager.Finality, uint64, error) {
	c, err := a.servedOf(s)
	if err != nil {
		return "", 0, err
	}
	return txmanager.Finality(c.Finality), uint64(c.Confirmations), nil
}

type payoutRequest struct {
	Asset   string  `json:"asset"`
	Amount  string  `json:"amount"` // decimal
	Address string  `json:"address"`
	CID     *string `json:"cid"`
	UserID  *int64  `json:"user_id"`
}

// postPayout posts a transfer from Funding to an external address.
func (a *App) postPayout(w http.ResponseWriter, r *http.Request) error {
	user, err := a.user(r)
	if err != nil {
		return err
	}
	body, err := web.Decode[payoutRequest](w, r, a.MaxBodyBytes)
	if err != nil {
		return err
	}
	req, err := newRequest(r, user, body.UserID, body.CID, body.Asset, body.Amount)
	if err != nil {
		return err
	}
	to, err := evm.ParseAddress(body.Address)
	if err != nil {
		return noAddressProblem()
	}
	req.From, req.To = transfer.Funding, transfer.Chain
	var hindrance error
	if req.Payout, hindrance, err = a.preparePayout(r.Context(), req, to); err != nil {
		return err
	}
	return a.submit(w, r, req, hindrance)
}

func noAddressProblem() *web.Problem {
	return addressProblem("is no address: want 0x and 40 hex digits, with the checksum of EIP-55 if their case is mixed")
}

func addressProblem(say string) *web.Problem {
	p := refusedProblem(transfer.InvalidAddress)
	p.Detail = say
	return p
}

// preparePayout fixes permanently what the payout does. If that is impossible, the returned request is
// never stored, but it still finds the stored one under its cid. The hindrance then says why. A wrong
// asset or amount is no hindrance, as the store checks those.
func (a *App) preparePayout(ctx context.Context, req transfer.Request, to txmanager.Address) (p *transfer.Payout, hindrance, err error) {
	none := &transfer.Payout{Address: to.String(), BaseUnits: "1", Payload: []byte("{}")}
	if !a.transfers.pays {
		return none, transfer.ErrRefused{Reason: transfer.TransferNotAllowed}, nil
	}
	asset, err := a.transfers.store.Asset(ctx, req.Asset)
	if err != nil {
		return nil, nil, err
	}
	if transfer.CheckAsset(asset, transfer.FundingToChain) != "" {
		return none, nil, nil
	}
	units, reason := transfer.CheckAmount(req.Amount, *asset, a.transfers.terms.SafetyFactor)
	if reason != "" {
		return none, nil, nil
	}
	if p, hindrance = payout.Prepare(*asset, units, to.String(), a.config.Transfer.PayoutMaxGas); hindrance != nil {
		return none, hindrance, nil
	}
	return p, nil, nil
}
