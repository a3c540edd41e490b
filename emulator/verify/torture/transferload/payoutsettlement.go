package transferload

import (
	"context"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/transfer"
)

// IsNeverRepeated reports whether a lost database made the payment for a payout that no user
// repeats: its user has a final answer, or the copy refused the payout. It first takes the
// amount from the user, because the copy has no withdrawal.
func (c *Operator) IsNeverRepeated(ctx context.Context, hash common.Hash) bool {
	client, err := ethclient.DialContext(ctx, c.Stack.Chain.URL())
	if err != nil {
		return false
	}
	defer client.Close()
	tx, _, err := client.TransactionByHash(ctx, hash)
	if err != nil {
		return false
	}
	receipt, err := client.TransactionReceipt(ctx, hash)
	if err != nil {
		return false
	}
	p, ok := paymentOf(tx)
	for _, s := range c.Ledger.Requests() {
		if !ok || !strings.EqualFold(s.Address, p.Address) || !c.isAbandoned(ctx, s) {
			continue
		}
		return receipt.Status != types.ReceiptStatusSuccessful || c.settlePayout(ctx, s)
	}
	return false
}

// isAbandoned reports whether each row of the payout is FAILED, or whether it has none and its
// user posts it no more.
func (c *Operator) isAbandoned(ctx context.Context, s *Script) bool {
	answers := s.Answers()
	var rows, failed int
	err := c.DB.QueryRow(ctx, `select count(*), count(*) filter (where state = $3) from transfers_tb where user_id = $1 and cid = $2`,
		s.UserID, s.CID, transfer.Failed).Scan(&rows, &failed)
	if err != nil || rows != failed {
		return false
	}
	return failed > 0 || c.Ledger.EndMayBeLost(answers)
}

// settlePayout takes the payout's amount from the user, once.
func (c *Operator) settlePayout(ctx context.Context, s *Script) bool {
	c.settling.Lock()
	defer c.settling.Unlock()
	reqID := s.Answers().ID
	if c.Ledger.settledPayout(s) == 0 && c.bookEither(ctx, Account{transfer.Funding, s.UserID, s.Asset.ID}, -int64(s.Units), reqID) {
		c.Note("operator of transfers: the payment for %s of user %d is taken: %d of asset %d", reqID, s.UserID, s.Units, s.Asset.ID)
	}
	return c.Ledger.settledPayout(s) == -int64(s.Units)
}

const selectRefused = `
select t.req_id
  from transfers_tb t
  join managed_tx m on m.submitter = t.payout_submitter and m.request_id = t.req_id
 where t.transfer_type = 3 and t.state = $1 and m.state = 'CONFIRMED'`

const selectWentOn = `select req_id from transfers_tb where transfer_type = 3 and state = any ($1)`

// settlePayouts takes the amounts of payouts that a release named as paid and Funding refused
// afterwards. It returns the amount of a payout that continued. It reports whether nothing is
// left to do.
func (c *Operator) settlePayouts(ctx context.Context) (all bool) {
	refused, err := c.reqIDs(ctx, selectRefused, transfer.Failed)
	if err != nil {
		return false
	}
	wentOn, err := c.reqIDs(ctx, selectWentOn, []int16{int16(transfer.Committed), int16(transfer.RolledBack)})
	if err != nil {
		return false
	}
	all = true
	for _, s := range c.Ledger.Requests() {
		is := func(of map[string]bool) bool {
			return slices.ContainsFunc(s.ReqIDs(), func(id string) bool { return of[id] })
		}
		switch {
		case s.Address == "":
		case is(refused):
			all = c.settlePayout(ctx, s) && all
		case is(wentOn):
			all = c.returnAmount(ctx, s) && all
		}
	}
	return all
}

// returnAmount gives back the amount that the operator took for the payout.
func (c *Operator) returnAmount(ctx context.Context, s *Script) bool {
	c.settling.Lock()
	defer c.settling.Unlock()
	taken := c.Ledger.settledPayout(s)
	if taken == 0 {
		return true
	}
	c.Note("operator of transfers: %s of user %d went on: %d of asset %d goes back", s.Answers().ID, s.UserID, -taken, s.Asset.ID)
	return c.bookEither(ctx, Account{transfer.Funding, s.UserID, s.Asset.ID}, -taken, s.Answers().ID)
}

func (c *Operator) reqIDs(ctx context.Context, query string, arg any) (map[string]bool, error) {
	rows, _ := c.DB.Query(ctx, query, arg) // the collector has the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	all := make(map[string]bool)
	for _, id := range ids {
		all[id] = true
	}
	return all, err
}
