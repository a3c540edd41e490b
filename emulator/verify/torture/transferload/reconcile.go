package transferload

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"net/http"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/chainscan"
	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/emulator/verify/checkers/rows"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// The operator's acts after a restore, as they are counted and printed.
const (
	StatedPaid = "payouts stated paid"
	StatedNot  = "payouts stated not paid"
	Settled    = "lost halves settled with the outside"
	Resumed    = "halts resumed"
)

// Reconciles returns the acts that are counted only in a run with restores.
func Reconciles() []string { return []string{StatedPaid, StatedNot, Settled, Resumed} }

// reconcile follows docs/runbooks/restore.md for transfers. Once the payer is released, it
// states the payouts in doubt, settles movements of the core that the copy lost, and resumes
// the halts when a restore explains each finding.
func (c *Operator) reconcile(ctx context.Context) {
	c.read = c.Ledger.Generation()
	if c.Ledger.Generation() == 0 || !c.isPayerReleased(ctx) {
		return
	}
	stated, settled, taken := c.statePayouts(ctx), c.settle(ctx), c.settlePayouts(ctx)
	if lost, _ := c.Ledger.lostBookings(); stated && settled && taken && len(lost) == 0 {
		c.resume(ctx)
	}
}

// isPayerReleased reports whether the copy was accepted and the payer is not in PROTECT.
func (c *Operator) isPayerReleased(ctx context.Context) (yes bool) {
	_ = c.DB.QueryRow(ctx, `select is_accepted_database() and not exists (select from protect_incident where submitter = $1 and closed_at is null)`, c.Stack.Payer).Scan(&yes) // unknown is no
	return yes
}

// undecidedPayout is a payout that needs an operator's statement.
type undecidedPayout struct {
	ReqID string
	Payment
	Window int
	Ended  bool // a release named a transaction for it that reverted
}

const selectUndecided = `
select t.req_id, coalesce(t.payout_token, ''), t.payout_address, t.payout_base_units::text, s.max_in_flight, m.nonce is not null
  from transfers_tb t
  join submitter s on s.submitter = t.payout_submitter
  left join managed_tx m on m.submitter = t.payout_submitter and m.request_id = t.req_id
 where t.open and t.transfer_type = 3 and t.state = 30 and (m.nonce is null or m.state = 'FAILED' and m.sub_state = 'REVERTED')
   and exists (select from identity_change c where c.at >= t.created_at or c.transfers_upto >= t.transfer_id)
   and not exists (select from payout_statement n where n.req_id = t.req_id and n.withdrawn_at is null
                      and (n.of_confirmed or n.change = (select coalesce(max(c.id), 0) from identity_change c)))
 order by t.created_at`

// statePayouts states of each payout in doubt whether a transaction of the payer has paid it.
// It reports whether no statement was needed.
func (c *Operator) statePayouts(ctx context.Context) bool {
	all := rows.All(ctx, c.DB, pgx.RowToStructByPos[undecidedPayout], selectUndecided)
	if len(all) == 0 {
		return true
	}
	paid := c.payments(ctx)
	for _, p := range all {
		c.statePayout(ctx, p, paid[p.Payment])
	}
	return false
}

func (c *Operator) statePayout(ctx context.Context, p undecidedPayout, hashes []string) {
	thens := []string{"refund", "repost"}
	c.Source.Shuffle(2, func(i, j int) { thens[i], thens[j] = thens[j], thens[i] })
	if p.Ended {
		thens = []string{"refund"} // the recorded request is terminal
	}
	what, body := StatedNot, map[string]any{"paid": false, "then": thens[0], "max_window": p.Window, "reason": "no transaction of the payer pays this address"}
	if len(hashes) > 0 {
		what, body = StatedPaid, map[string]any{"paid": true, "tx_hash": hashes[0], "reason": "found among the payer's transactions"}
	}
	state := func() client.Answer {
		a := c.ask(ctx, http.MethodPost, "/admin/v1/transfers/"+p.ReqID+"/payout-statement", body)
		c.Note("operator of transfers: statement of %s by %v: %s", p.ReqID, body, a)
		return a
	}
	a := state()
	if what == StatedNot && len(thens) > 1 && a.IsUnclear() && !c.Replaced(c.read) {
		body["then"] = thens[1] // refused, if the first statement was stored
		a = state()
	}
	if a.Status == http.StatusOK {
		c.Ledger.Count(what)
	}
}

// Payment is an amount that reaches an address on the chain.
type Payment struct {
	Token   txmanager.Address // the contract; "": the chain's coin
	Address txmanager.Address
	Units   string // in the chain's smallest unit
}

// payments returns the hashes of the payer's successful transactions by their payment.
func (c *Operator) payments(ctx context.Context) map[Payment][]string {
	all := make(map[Payment][]string)
	for _, tx := range steps.Value(chainscan.Read(ctx, c.Stack.Chain.URL(), nil)).From(c.Stack.Payer.Address()) {
		if p, ok := paymentOf(tx.Transaction); ok && tx.Succeeded() {
			all[p] = append(all[p], tx.Hash().Hex())
		}
	}
	return all
}

// transferCall is the length in bytes of a call of transfer(address,uint256).
const transferCall = 4 + 32 + 32

// paymentOf returns the payment that a transaction makes when it succeeds.
func paymentOf(tx *types.Transaction) (p Payment, ok bool) {
	if tx.To() == nil {
		return p, false
	}
	if data := tx.Data(); len(data) == transferCall && tx.Value().Sign() == 0 {
		return Payment{eip155.Address(*tx.To()), eip155.Address(common.BytesToAddress(data[4:36])), new(big.Int).SetBytes(data[36:]).String()}, true
	}
	return Payment{"", eip155.Address(*tx.To()), tx.Value().String()}, tx.Value().Sign() > 0
}

// settleBy books units from or to the outside for a transfer: in Funding, or at the core if
// Funding refuses it. It reports whether they were booked.
func (c *Operator) settleBy(ctx context.Context, units int64, userID int64, assetID int32, reqID string) bool {
	id := fmt.Sprintf("settle-%s-%d", reqID, c.settlements.Add(1))
	booked := c.book(ctx, Account{Side: transfer.Funding, UserID: userID, AssetID: assetID}, units, id, reqID) ||
		c.book(ctx, Account{Side: transfer.Spot, UserID: userID, AssetID: assetID}, units, id+"-core", reqID)
	c.Note("operator of transfers: %s of user %d is settled by %d of asset %d: %t", reqID, userID, units, assetID, booked)
	return booked
}

// half is the sum of both ledgers' movements for one transfer. A complete transfer has sum 0.
type half struct {
	UserID  int64
	AssetID int32
	Net     int64 // of both journals, in units
	Done    bool  // terminal, or its row is lost
	Lost    bool  // its row is lost
}

// settle books with the outside what the core moved for transfers that the copy has lost or
// that ended otherwise. It reports whether nothing is left.
func (c *Operator) settle(ctx context.Context) (all bool) {
	halves, settled := c.halves(ctx), c.Ledger.Settlements()
	all = true
	for reqID, h := range halves {
		if _, known := settled[reqID]; h.Lost && !known {
			c.Ledger.markLost(reqID)
		}
		owed := -h.Net - settled[reqID]
		if !h.Done || owed == 0 {
			continue
		}
		all = c.settleBy(ctx, owed, h.UserID, h.AssetID, reqID) && all
	}
	return all
}

// book makes one ledger book a movement with the outside for a transfer, and reports whether
// it was applied.
func (c *Operator) book(ctx context.Context, at Account, units int64, id, reqID string) bool {
	b, generation := newBooking(at, id, units), c.Ledger.Generation()
	b.settles = reqID
	got := c.Cashier.insist(ctx, b)
	if got.Verdict != transfer.Success {
		return false
	}
	c.Ledger.Count(Settled)
	c.Ledger.recordOutcome(b, got, generation)
	c.Ledger.addBooking(b)
	return true
}

// selectRows has the units that Funding moved for each transfer; payouts have none.
const selectRows = `
select t.req_id, t.open, coalesce(sum(case when o.op_type in ('deposit', 'refund') then o.units else -o.units end), 0)::bigint
  from transfers_tb t
  left join transfer_operations o
    on o.req_id = t.req_id and o.result = 'SUCCESS' and o.op_type in ('withdraw', 'deposit', 'refund') and t.transfer_type <> 3
 group by t.req_id, t.open`

// halves reads the core's journal first: the row of a transfer exists before any call for it.
func (c *Operator) halves(ctx context.Context) map[string]half {
	all := make(map[string]half)
	steps.OK(money.EachLine(ctx, c.Stack.Core.Ledger(), 0, math.MaxUint64, func(l transfer.Entry) {
		if l.Refused != "" || !money.MovesMoney(l.Op) {
			return
		}
		h := all[l.ReqID]
		h.UserID, h.AssetID, h.Done, h.Lost = l.UserID, l.AssetID, true, true
		h.Net += money.Change(l.Op, l.Units).Int64()
		all[l.ReqID] = h
	}))
	var reqID string
	var open bool
	var net int64
	rows.Each(ctx, c.DB, []any{&reqID, &open, &net}, func() {
		if h, ok := all[reqID]; ok {
			h.Net, h.Done, h.Lost = h.Net+net, !open, false
			all[reqID] = h
		}
	}, selectRows)
	return all
}

// resume resumes the halts once a restore explains each finding of a full check.
func (c *Operator) resume(ctx context.Context) {
	var halted bool
	steps.OK(c.DB.QueryRow(ctx, `select exists (select from transfer_halt where resumed_at is null)`).Scan(&halted))
	if !halted {
		return
	}
	c.check(ctx)
	var shown struct {
		LastCheck *struct{ Found []Finding } `json:"last_check"`
		Halts     []struct{ ID int64 }
	}
	if _, ok := c.Read(ctx, "/admin/v1/conservation", &shown); !ok || shown.LastCheck == nil || len(shown.Halts) == 0 {
		return
	}
	for _, f := range shown.LastCheck.Found {
		if !f.IsExplained(c.Ledger) {
			c.Note("operator of transfers: no halt is resumed: %+v", f)
			return
		}
	}
	a := c.ask(ctx, http.MethodPost, fmt.Sprintf("/admin/v1/halts/%d/resume", shown.Halts[0].ID), map[string]any{"reason": "each finding is of what the copy lost", "earlier": true})
	if c.Note("operator of transfers: resume: %s", a); a.Status == http.StatusNoContent {
		c.Ledger.Count(Resumed)
	}
}

// Finding is one finding of a check of conservation.
type Finding struct {
	Kind     string
	ReqID    string `json:"req_id"`
	Expected string
	Got      string
}

// IsExplained reports whether a restore explains the finding: it is about a transfer that the
// operator settled, or about a payment whose transfer was lost.
func (f Finding) IsExplained(l *Ledger) bool {
	units, isSettled := l.Settlements()[f.ReqID]
	switch f.Kind {
	case "PAYMENT_WITHOUT_TRANSFER":
		return l.Generation() > 0
	case "PAYMENT_DIFFERS": // refused by Funding, and settled
		return l.Generation() > 0 && units != 0
	case "NO_TRANSFER", "CREDIT_WITHOUT_DEBIT", "CONTRADICTS_STATE", "COMMITTED_INCOMPLETE", "ROLLED_BACK_UNPAID", "CREDIT_AND_REFUND":
		return l.Generation() > 0 && isSettled
	}
	return false
}
