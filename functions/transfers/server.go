// Package transfers serves the users of transfers between ledgers. It holds no chain and no signer: the
// coordinator alone moves money.
package transfers

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

// Server serves the functions transfer and conservation.
type Server struct {
	*serve.Base
	Users       *web.Verifier
	Store       *transfers.Store
	Coordinator *transfer.Coordinator
	Monitor     *conservation.Monitor

	Acts *transfer.Accounts // acts on accounts

	// Spot reads a user's account in the trading core.
	Spot func(ctx context.Context, userID int64, assetID int32) (b trading.Balance, exists bool, err error)

	Terms        transfer.Terms
	RetryFirst   time.Duration // before the first further attempt
	PayoutMaxGas uint64        // of one payout
	Pays         bool          // payouts are offered
}
