package payouts

import (
	"fmt"
	"math/big"
	"net/http"

	"github.com/ethereum/go-ethereum/common"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// paid returns the chain's payments to the user's address, in units of the asset.
func (u *user) paid() uint64 {
	u.T.Helper()
	terms := u.asset.Payout
	var base *big.Int
	if terms.Token == "" {
		base = must(u.Node.BalanceAt(u.Ctx, common.Address(eip155.MustBytes(u.address)), nil))(u.T)
	} else {
		word := must(u.Node.StorageAt(u.Ctx, common.HexToAddress(terms.Token), common.HexToHash(u.address.String()), nil))(u.T)
		base = new(big.Int).SetBytes(word)
	}
	one, _ := new(big.Int).SetString(terms.BaseUnits(1, u.asset.Precision), 10)
	units, rest := new(big.Int).QuoRem(base, one, new(big.Int))
	if rest.Sign() != 0 || !units.IsUint64() {
		u.T.Fatalf("on the chain: got %s in its smallest unit, which is no number of units", base)
	}
	return units.Uint64()
}

func tokenOf(a transfer.Asset) txmanager.Address {
	return eip155.Address(common.HexToAddress(a.Payout.Token))
}

// journal returns the user's operations in Funding's journal: their number and their units.
func (u *user) journal() (times map[transfer.Op]int, units map[transfer.Op]uint64) {
	u.T.Helper()
	times, units = make(map[transfer.Op]int), make(map[transfer.Op]uint64)
	type entry struct {
		Op    transfer.Op
		Units uint64
	}
	for _, e := range must(pgx.CollectRows(must(u.DB.Query(u.Ctx, `select op_type, units from transfer_operations where user_id = $1 and result = 'SUCCESS'`, u.ID))(u.T), pgx.RowToStructByPos[entry]))(u.T) {
		times[e.Op]++
		units[e.Op] += e.Units
	}
	return times, units
}

// has returns the balance in Funding.
func (u *user) has() (units uint64) {
	u.T.Helper()
	err := u.DB.QueryRow(u.Ctx, `
select (available * 10 ^ precision)::bigint from balances_tb where user_id = $1 and asset_id = $2`, u.ID, u.asset.ID).Scan(&units)
	check(u.T, err, "balance of user", u.ID)
	return units
}

// wantMoney checks the balance in Funding, and the amount and number of payments at the address.
func (u *user) wantMoney(what string, inFunding, atAddress uint64, payments int) {
	u.T.Helper()
	if f, p, n := u.has(), u.paid(), u.payments(); f != inFunding || p != atAddress || n != payments {
		u.T.Errorf("%s: got %d in Funding and %d at the address by %d payments, want %d, %d and %d", what, f, p, n, inFunding, atAddress, payments)
	}
}

// wantOnce checks that the user's one payout of 400,001 units was paid, or has moved nothing.
func (u *user) wantOnce(what string, end transfer.State) {
	u.T.Helper()
	if end == transfer.Committed {
		u.wantMoney(what, 599_999, 400_001, 1)
	} else {
		u.wantMoney(what, 1_000_000, 0, 0)
	}
}

// end is the end of every episode. Withdrawn and not refunded money is at the address, to the unit, by
// one payment each.
func (u *user) end() {
	u.T.Helper()
	u.End(u.picture, u.replay)
	u.settled()
}

// settled compares only the chain and Funding's journal.
func (u *user) settled() {
	u.T.Helper()
	times, units := u.journal()
	if got, want := u.has(), units[transfer.OutsideDeposit]-units[transfer.Withdraw]+units[transfer.Refund]; got != want {
		u.T.Errorf("user %d has %d in Funding, and its journal says %d", u.ID, got, want)
	}
	if got, want := u.paid(), units[transfer.Withdraw]-units[transfer.Refund]; got != want {
		u.T.Errorf("user %d: %d were withdrawn, %d given back, and the chain has paid %d", u.ID, units[transfer.Withdraw], units[transfer.Refund], got)
	}
	if got, want := u.payments(), times[transfer.Withdraw]-times[transfer.Refund]; got != want {
		u.T.Errorf("user %d: %d withdrawals, %d refunds, and %d payments on the chain", u.ID, times[transfer.Withdraw], times[transfer.Refund], got)
	}
}

// picture returns everything stored about the user's money, one row a line.
func (u *user) picture() []string {
	u.T.Helper()
	return append(u.Picture(), fmt.Sprintf("%d in Funding, %d on the chain by %d payments", u.has(), u.paid(), u.payments()))
}

// replay repeats each payout's step task, withdrawal and refund.
func (u *user) replay() {
	u.T.Helper()
	for _, reqID := range u.All() {
		x := u.Load(reqID)
		equal(u.T, fmt.Sprintf("task of %s, again", x.ReqID), u.Task(x.ReqID), http.StatusNoContent)
		if x.State == transfer.Failed {
			continue // Funding was never called: a withdrawal would be its first
		}
		success := transfer.Outcome{Verdict: transfer.Success}
		equal(u.T, fmt.Sprintf("withdrawal of %s, again", x.ReqID), u.Funding.Withdraw(u.Ctx, x.Call()), success)
		if x.State != transfer.RolledBack {
			continue
		}
		equal(u.T, fmt.Sprintf("refund of %s, again", x.ReqID), u.Funding.Refund(u.Ctx, x.Call()), success)
	}
}
