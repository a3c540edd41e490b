package payouts

import (
	"fmt"
	"math/big"
	"net/http"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/shared/chain/devchain/contracts"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// paid returns the chain's payments to the user's address, in units of the asset.
func (u *user) paid() uint64 {
	u.t.Helper()
	terms := u.asset.Payout
	var base *big.Int
	var err error
	if terms.Token == "" {
		base, err = u.client.BalanceAt(u.ctx, common.Address(eip155.MustBytes(u.address)), nil)
	} else {
		base, err = contracts.Balance(u.ctx, u.Chain, tokenOf(u.asset), u.address)
	}
	if err != nil {
		u.t.Fatal(err)
	}
	one, _ := new(big.Int).SetString(terms.BaseUnits(1, u.asset.Precision), 10)
	units, rest := new(big.Int).QuoRem(base, one, new(big.Int))
	if rest.Sign() != 0 || !units.IsUint64() {
		u.t.Fatalf("on the chain: got %s in its smallest unit, which is no number of units", base)
	}
	return units.Uint64()
}

func tokenOf(a transfer.Asset) txmanager.Address {
	return eip155.Address(common.HexToAddress(a.Payout.Token))
}

// journal returns the user's operations in Funding's journal: their number and their units.
func (u *user) journal() (times map[transfer.Op]int, units map[transfer.Op]uint64) {
	u.t.Helper()
	times, units = make(map[transfer.Op]int), make(map[transfer.Op]uint64)
	rows, err := u.DB.Query(u.ctx, `select op_type, units from transfer_operations where user_id = $1 and result = 'SUCCESS'`, u.id)
	if err != nil {
		u.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var op transfer.Op
		var n uint64
		if err := rows.Scan(&op, &n); err != nil {
			u.t.Fatal(err)
		}
		times[op]++
		units[op] += n
	}
	if err := rows.Err(); err != nil {
		u.t.Fatal(err)
	}
	return times, units
}

// has returns the balance in Funding.
func (u *user) has() (units uint64) {
	u.t.Helper()
	err := u.DB.QueryRow(u.ctx, `
select (available * 10 ^ precision)::bigint from balances_tb where user_id = $1 and asset_id = $2`, u.id, u.asset.ID).Scan(&units)
	if err != nil {
		u.t.Fatalf("balance of user %d: %v", u.id, err)
	}
	return units
}

// wantMoney checks the balance in Funding, and the amount and number of payments at the address.
func (u *user) wantMoney(what string, inFunding, atAddress uint64, payments int) {
	u.t.Helper()
	if f, p, n := u.has(), u.paid(), u.payments(); f != inFunding || p != atAddress || n != payments {
		u.t.Errorf("%s: got %d in Funding and %d at the address by %d payments, want %d, %d and %d", what, f, p, n, inFunding, atAddress, payments)
	}
}

// end is the end of every episode. All the user's transfers end. Withdrawn and not refunded money is
// at the address, to the unit, by one payment each. The checkers find nothing. Then every task runs
// three times more, late, and changes nothing.
func (u *user) end() {
	u.t.Helper()
	poll(u.t, fmt.Sprintf("every payout of user %d has ended", u.id), func() bool {
		var open int
		err := u.DB.QueryRow(u.ctx, `select count(*) from transfers_tb where user_id = $1 and open`, u.id).Scan(&open)
		return err == nil && open == 0
	})
	u.settled()
	found, err := money.Check(u.ctx, money.Run{Database: u.Database, Core: u.Core.Ledger(), Users: []int64{u.id}, Settled: true})
	if err != nil {
		u.t.Fatal(err)
	}
	if len(found) > 0 {
		u.t.Error(money.Report(found))
	}
	before := u.picture()
	for range 3 {
		u.replay()
	}
	if diff := cmp.Diff(before, u.picture()); diff != "" {
		u.t.Errorf("user %d, after everything came three times more (-before +after):\n%s", u.id, diff)
	}
}

// settled compares only the chain and Funding's journal.
func (u *user) settled() {
	u.t.Helper()
	times, units := u.journal()
	if got, want := u.has(), units[transfer.OutsideDeposit]-units[transfer.Withdraw]+units[transfer.Refund]; got != want {
		u.t.Errorf("user %d has %d in Funding, and its journal says %d", u.id, got, want)
	}
	if got, want := u.paid(), units[transfer.Withdraw]-units[transfer.Refund]; got != want {
		u.t.Errorf("user %d: %d were withdrawn, %d given back, and the chain has paid %d", u.id, units[transfer.Withdraw], units[transfer.Refund], got)
	}
	if got, want := u.payments(), times[transfer.Withdraw]-times[transfer.Refund]; got != want {
		u.t.Errorf("user %d: %d withdrawals, %d refunds, and %d payments on the chain", u.id, times[transfer.Withdraw], times[transfer.Refund], got)
	}
}

// picture returns everything stored about the user's money, one row a line.
func (u *user) picture() (lines []string) {
	u.t.Helper()
	lines = append(lines, fmt.Sprintf("%d in Funding, %d on the chain by %d payments", u.has(), u.paid(), u.payments()))
	rows, err := u.DB.Query(u.ctx, `
select concat_ws(' ', 'funding', id, req_id, op_type, result, reason, units) from transfer_operations where user_id = $1
union all
select concat_ws(' ', 'row', req_id, state, error_message, retry_count, updated_at) from transfers_tb where user_id = $1
union all
select concat_ws(' ', 'history', h.id, h.state) from transfer_history h join transfers_tb using (transfer_id) where user_id = $1
union all
select concat_ws(' ', 'managed', m.tx_id, m.state, m.sub_state, m.nonce) from managed_tx m join transfers_tb t on t.req_id = m.request_id where t.user_id = $1
 order by 1`, u.id)
	if err != nil {
		u.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			u.t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if err := rows.Err(); err != nil {
		u.t.Fatal(err)
	}
	return lines
}

// replay delivers the step task of each of the user's payouts once more, and repeats its withdrawal
// and refund.
func (u *user) replay() {
	u.t.Helper()
	for _, x := range u.all() {
		if status := u.task(x.ReqID); status != http.StatusNoContent {
			u.t.Errorf("task of %s, again: got %d, want 204", x.ReqID, status)
		}
		if x.State == transfer.Failed {
			continue // Funding was never called: a withdrawal would be its first
		}
		success := transfer.Outcome{Verdict: transfer.Success}
		if got := u.Funding.Withdraw(u.ctx, x.Call()); got != success {
			u.t.Errorf("withdrawal of %s, again: got %+v, want success", x.ReqID, got)
		}
		if x.State != transfer.RolledBack {
			continue
		}
		if got := u.Funding.Refund(u.ctx, x.Call()); got != success {
			u.t.Errorf("refund of %s, again: got %+v, want success", x.ReqID, got)
		}
	}
}

// all returns the user's payouts.
func (u *user) all() (list []transfer.Transfer) {
	u.t.Helper()
	rows, err := u.DB.Query(u.ctx, `select req_id from transfers_tb where user_id = $1 order by transfer_id`, u.id)
	if err != nil {
		u.t.Fatal(err)
	}
	defer rows.Close()
	var reqIDs []string
	for rows.Next() {
		var reqID string
		if err := rows.Scan(&reqID); err != nil {
			u.t.Fatal(err)
		}
		reqIDs = append(reqIDs, reqID)
	}
	if err := rows.Err(); err != nil {
		u.t.Fatal(err)
	}
	for _, reqID := range reqIDs {
		list = append(list, u.load(reqID))
	}
	return list
}

// task delivers the step task of a payout once more, and returns its status.
func (u *user) task(reqID string) (status int) {
	u.t.Helper()
	return u.taskAt(strings.TrimPrefix(u.URLMap.InternalURL(), "http://"), reqID)
}

// taskAt delivers it to one process; 0: it gave no answer.
func (u *user) taskAt(addr, reqID string) (status int) {
	u.t.Helper()
	return u.internal(addr, stack.TasksAccount, "transfer", map[string]string{"req_id": reqID})
}

// internal calls an internal function of one process; 0: it gave no answer.
func (u *user) internal(addr, account, function string, body any) (status int) {
	u.t.Helper()
	token, err := u.Issuer.Token(u.ctx, account, stack.InternalAudience)
	if err != nil {
		u.t.Fatal(err)
	}
	status, _, err = stack.CallWith(u.ctx, token, http.MethodPost, "http://"+addr+"/internal/"+function, body)
	if err != nil {
		return 0
	}
	return status
}
