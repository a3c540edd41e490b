package main

import (
	"context"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/chainscan"
	"github.com/fencepost/fencepost/emulator/verify/checkers/rows"
	"github.com/fencepost/fencepost/emulator/verify/torture/transferload"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/transfer"
)

// payout is a result of [payoutRows]: the row of a payout, with the number of withdrawals and
// refunds in Funding's journal.
type payout struct {
	ReqID                string
	UserID               int64
	State                transfer.State
	transferload.Payment // the payment that it should make
	Withdrawn            int
	Refunded             int
}

// checkPayouts compares each payout with the chain: it is paid once or refunded once.
func (e *episode) checkPayouts(ctx context.Context) check {
	c := check{Name: "paid-or-refunded", Promise: "a payout is paid once on the chain or given back once in Funding, never both, never neither, never to another address"}
	l := e.transferRun.Ledger
	wanted := afterRestores(payoutRows(ctx, e.db), l.Requests(), l.EndMayBeLost, e.restores.payouts, l.Settlements())
	payoutViolations(c.reportUser, wanted, e.payments(ctx))
	return c
}

func payoutRows(ctx context.Context, db rows.Querier) []payout {
	return rows.All(ctx, db, pgx.RowToStructByPos[payout], `
select req_id, user_id, state, coalesce(payout_token, ''), payout_address, payout_base_units::text,
       (select count(*) from transfer_operations o where o.req_id = t.req_id and op_type = 'withdraw' and result = 'SUCCESS'),
       (select count(*) from transfer_operations o where o.req_id = t.req_id and op_type = 'refund' and result = 'SUCCESS')
  from transfers_tb t
 where transfer_type = 3
 order by transfer_id`)
}

// payments returns the payer's payments on the chain, without those of the foreign signer.
func (e *episode) payments(ctx context.Context) (all []transferload.Payment) {
	foreign := make(map[common.Hash]bool)
	for _, u := range e.world.Foreign.Of(e.env.Payer) {
		foreign[u.Hash] = true
	}
	for _, tx := range steps.Value(chainscan.Read(ctx, e.env.Chain.URL(), nil)).From(e.env.Payer.Address()) {
		if !foreign[tx.Hash()] {
			all = append(all, paidBy(tx.Transaction, tx.Receipt)...)
		}
	}
	return all
}

// afterRestores returns the payouts as they must be after restores. The map rows has the payouts
// that a lost database had stored or withdrawn after its backup. The map settled has the units
// that the operator booked with the outside, by req_id.
//
// An amount that the operator took for a payout counts as its withdrawal. Two kinds of payouts
// must be paid once. A lost database withdrew the first kind without a refund, the operator took
// its amount, and its row is FAILED or lost. A lost database answered COMMITTED for the second
// kind, and its row is lost. No other payout with a lost row may have a payment.
func afterRestores(wanted []payout, scripts []*transferload.Script, lost func(transferload.Answers) bool, rows map[string]payout, settled map[string]int64) []payout {
	here := make(map[string]int)
	for i, p := range wanted {
		here[p.ReqID] = i
	}
	for _, w := range scripts {
		answers := w.Answers()
		ids := w.ReqIDs()
		was, had := lostRow(ids, rows)
		times, excused := timesTaken(w, settled), had && was.Withdrawn > 0 && was.Refunded == 0
		if i := slices.IndexFunc(ids, func(id string) bool { _, is := here[id]; return is }); i >= 0 {
			now := &wanted[here[ids[i]]]
			if now.Withdrawn += times; now.State == transfer.Failed && times > 0 && excused {
				now.State = transfer.Committed
			}
			continue
		}
		if had && lost(answers) && (answers.End.State == transfer.Committed || times > 0 && excused) {
			was.State, was.Withdrawn, was.Refunded = transfer.Committed, times, 0
			wanted = append(wanted, was)
		}
	}
	return wanted
}

// lostRow returns the payout as lost databases had it, with their most withdrawals and refunds.
func lostRow(ids []string, rows map[string]payout) (was payout, had bool) {
	for _, id := range ids {
		p, is := rows[id]
		if !is {
			continue
		}
		p.Withdrawn, p.Refunded = max(p.Withdrawn, was.Withdrawn), max(p.Refunded, was.Refunded)
		was, had = p, true
	}
	return was, had
}

// timesTaken returns how often the operator took the payout's amount; 2 is any other amount.
func timesTaken(w *transferload.Script, settled map[string]int64) int {
	switch -w.Settled(settled) {
	case 0:
		return 0
	case int64(w.Units):
		return 1
	}
	return 2
}

var transferEvent = crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))

// paidBy returns the payments of one transaction of the payer: coin by its value, which is 0 for
// a placeholder, and tokens by their events.
func paidBy(tx *types.Transaction, receipt *types.Receipt) (all []transferload.Payment) {
	if receipt.Status != types.ReceiptStatusSuccessful {
		return nil
	}
	if tx.Value().Sign() > 0 && tx.To() != nil {
		all = append(all, transferload.Payment{Address: eip155.Address(*tx.To()), Units: tx.Value().String()})
	}
	for _, l := range receipt.Logs {
		if len(l.Topics) == 3 && l.Topics[0] == transferEvent {
			all = append(all, transferload.Payment{
				Token: eip155.Address(l.Address), Address: eip155.Address(common.BytesToAddress(l.Topics[2][:])),
				Units: new(big.Int).SetBytes(l.Data).String(),
			})
		}
	}
	return all
}

// payoutViolations reports the payouts that are not paid once or refunded once, and the payments
// without a payout.
func payoutViolations(report reporter, wanted []payout, paid []transferload.Payment) {
	times, want := make(map[transferload.Payment]int), make(map[transferload.Payment]int)
	for _, p := range paid {
		times[p]++
	}
	for _, p := range wanted {
		if p.State == transfer.Committed {
			want[p.Payment]++
		}
	}
	for _, p := range wanted {
		withdrawn, refunded := 1, 0
		switch p.State {
		case transfer.Committed:
		case transfer.RolledBack:
			refunded = 1
		case transfer.Failed:
			withdrawn = 0
		default:
			report(p.UserID, p.ReqID, "it is %s: neither paid nor refunded", p.State)
			continue
		}
		if times[p.Payment] != want[p.Payment] || p.Withdrawn != withdrawn || p.Refunded != refunded {
			report(p.UserID, p.ReqID, "it is %s: withdrawn %d times, refunded %d times, and the chain has %d payments of %s to %s where there should be %d",
				p.State, p.Withdrawn, p.Refunded, times[p.Payment], p.Units, p.Address, want[p.Payment])
		}
	}
	for _, p := range wanted {
		delete(times, p.Payment)
	}
	for p, n := range times {
		report(0, "", "the payer paid %s to %s (token %q) %d times, and no payout says so", p.Units, p.Address, p.Token, n)
	}
}
