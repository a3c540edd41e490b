package transferload

import (
	"context"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers/rows"
	"github.com/fencepost/fencepost/shared/transfer"
)

// IsNeverRepeated reports whether a lost database made the payment for a payout that no user
// repeats: its user has a final answer, or the copy refused the payout. It first takes the
// amount from the user, because the copy has no withdrawal.
func (c *Operator) IsNeverRepeated(ctx context.Context, hash common.Hash) (yes bool) {
	err := steps.Run(func() {
		client := steps.Value(ethclient.DialContext(ctx, c.Stack.Chain.URL()))
		defer client.Close()
		tx, _, err := client.TransactionByHash(ctx, hash)
		steps.OK(err)
		receipt := steps.Value(client.TransactionReceipt(ctx, hash))
		p, ok := paymentOf(tx)
		for _, s := range c.Ledger.Requests() {
			if ok && strings.EqualFold(s.Address, string(p.Address)) && c.isAbandoned(ctx, s) {
				yes = receipt.Status != types.ReceiptStatusSuccessful || c.settlePayout(ctx, s, -int64(s.Units))
				return
			}
		}
	})
	return err == nil && yes
}

// isAbandoned reports whether each row of the payout is FAILED, or whether it has none and its
// user posts it no more.
func (c *Operator) isAbandoned(ctx context.Context, s *Script) bool {
	answers := s.Answers()
	var all, failed int
	steps.OK(c.DB.QueryRow(ctx, `select count(*), count(*) filter (where state = $3) from transfers_tb where user_id = $1 and cid = $2`,
		s.UserID, s.CID, transfer.Failed).Scan(&all, &failed))
	return all == failed && (failed > 0 || c.Ledger.EndMayBeLost(answers))
}

// settlePayout books the units that are not yet settled for the payout. Units is minus its amount if it is taken from the
// user. It is 0 if it was taken and goes back.
func (c *Operator) settlePayout(ctx context.Context, s *Script, units int64) bool {
	c.settling.Lock()
	defer c.settling.Unlock()
	owed := units - s.Settled(c.Ledger.Settlements())
	return owed == 0 || c.settleBy(ctx, owed, s.UserID, s.Asset.ID, s.Answers().ID)
}

// selectPayouts has the payouts that Funding refused although the chain has them, and those that went on.
const selectPayouts = `
select t.req_id, t.state = $1
  from transfers_tb t
  left join managed_tx m on m.submitter = t.payout_submitter and m.request_id = t.req_id
 where t.transfer_type = 3 and (t.state = any ($2) or t.state = $1 and m.state = 'CONFIRMED')`

// settlePayouts takes the amounts of payouts that a release named as paid and Funding refused
// afterwards. It returns the amount of a payout that continued. It reports whether nothing is
// left to do.
func (c *Operator) settlePayouts(ctx context.Context) (all bool) {
	var reqID string
	var isRefused bool
	refused, wentOn := make(map[string]bool), make(map[string]bool)
	ended := []int16{int16(transfer.Committed), int16(transfer.RolledBack)}
	rows.Each(ctx, c.DB, []any{&reqID, &isRefused}, func() {
		refused[reqID], wentOn[reqID] = isRefused, !isRefused
	}, selectPayouts, transfer.Failed, ended)
	all = true
	for _, s := range c.Ledger.Requests() {
		is := func(of map[string]bool) bool {
			return slices.ContainsFunc(s.ReqIDs(), func(id string) bool { return of[id] })
		}
		switch {
		case s.Address == "":
		case is(refused):
			all = c.settlePayout(ctx, s, -int64(s.Units)) && all
		case is(wentOn):
			all = c.settlePayout(ctx, s, 0) && all
		}
	}
	return all
}
