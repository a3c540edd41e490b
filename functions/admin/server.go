// Package admin serves the operators. An act that approvals.required names is proposed by one operator
// and carried out when another approves it. The package holds no signer that signs.
package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/functions/transactions"
	usertransfers "github.com/fencepost/fencepost/functions/transfers"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/store"
	checks "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// Desk is the part that both servers of this package share: operators, approvals and proposals.
type Desk struct {
	*serve.Base
	Store     *store.Store
	Approvals config.Approvals

	acts    *web.Mux          // operator calls that proposals carry out
	problem func(error) error // what an operator may see of an error
}

// notServed is the problem of a submitter on a chain that the deployment does not serve.
func (a *Desk) notServed(field string, s txmanager.Submitter) error {
	var ids []string
	for _, c := range a.Chains {
		ids = append(ids, fmt.Sprint(c.ID))
	}
	return web.FieldProblem(field, "is on chain %d; this deployment serves chain %s", s.ChainID(), strings.Join(ids, ", "))
}

// Server serves the function admin: submitters, PROTECT and transactions.
type Server struct {
	*Desk
	Checker  func(name string) (signer.Checker, error) // of the signers that a registration can name; it signs nothing
	Release  func(context.Context, txmanager.Submitter, txmanager.ReleaseRequest) (txmanager.ReleaseResult, error)
	Intents  *transactions.Server // serves callers
	Transfer *TransferServer      // nil: the deployment offers no transfers
	Webhooks Webhooks

	Nonce  config.Nonce          // the terms of a registration
	Limits store.AttentionLimits // beyond which something needs a person

	Settings []config.Difference // of this process, from the defaults
}

// TransferServer serves the operators' calls about transfers, as the function admin.
type TransferServer struct {
	*Desk
	Transfers *usertransfers.Server
	Checks    *checks.Book
	Payouts   *payout.Ledger
	Trading   *trading.Ledger

	RescueAfter time.Duration // of a transfer that has lost its worker
}
