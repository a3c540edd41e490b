package payout_test

import (
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/shared/chain/chaintest"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/devchain/contracts"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// serve runs one lease session of the payer's worker.
func (h *env) serve() {
	h.t.Helper()
	check.OK(h.t)(h.worker.ServeSubmitter(h.t.Context(), h.payer, txmanager.KindAdvance))
}

// serveUntil runs the payer's worker until the payout's transaction is in the wanted state.
func (h *env) serveUntil(reqID, want string) {
	h.t.Helper()
	h.awaitServed(reqID+" is "+want, func() bool { return h.managed(reqID) == want })
}

// mineUntil makes a block after each run of the worker.
func (h *env) mineUntil(reqID, want string) {
	h.t.Helper()
	h.awaitMined(reqID+" is "+want, func() bool { return h.managed(reqID) == want })
}

func (h *env) mine(n int) {
	h.t.Helper()
	check.OK(h.t)(h.chain.Mine(n))
}

// managed returns the state of the payout's transaction, such as "FAILED/CANCELLED". It returns ""
// if there is none, and both if there are two.
func (h *env) managed(reqID string) string {
	h.t.Helper()
	return value[string](h, `select coalesce(string_agg(state || coalesce('/' || sub_state, ''), ' and '), '') from managed_tx where request_id = $1`, reqID)
}

func (h *env) wantManaged(x transfer.Transfer, want string) {
	h.t.Helper()
	check.Equal(h.t, "managed", h.managed(x.ReqID), want)
}

// txID returns the id of the payout's transaction.
func (h *env) txID(x transfer.Transfer) string {
	h.t.Helper()
	return value[string](h, `select tx_id::text from managed_tx where request_id = $1`, x.ReqID)
}

// txHash returns the hash of the payout's transaction.
func (h *env) txHash(x transfer.Transfer) string {
	h.t.Helper()
	return value[string](h, `select tx_hash from managed_tx where request_id = $1`, x.ReqID)
}

// succeeded is what the receipt of the payout's transaction says.
func (h *env) succeeded(x transfer.Transfer) bool {
	h.t.Helper()
	return value[bool](h, `select (receipt ->> 'succeeded')::boolean from managed_tx where request_id = $1`, x.ReqID)
}

// confirm posts the payout, and mines it until it is CONFIRMED.
func (h *env) confirm(x transfer.Transfer) {
	h.t.Helper()
	h.drive(x.ReqID, transfer.TargetPending)
	h.mineUntil(x.ReqID, "CONFIRMED")
}

// pay posts the payout, and drives it until it is COMMITTED.
func (h *env) pay(x transfer.Transfer) {
	h.t.Helper()
	h.confirm(x)
	h.drive(x.ReqID, transfer.Committed)
}

// raw returns the last signed version of the payout's transaction.
func (h *env) raw(reqID string) []byte {
	h.t.Helper()
	return value[[]byte](h, `select bytes from managed_tx m join tx_document d using (tx_id)
		where request_id = $1 and name like 'version:%' order by name desc limit 1`, reqID)
}

func value[T any](h *env, query string, args ...any) (v T) {
	h.t.Helper()
	check.OK(h.t)(h.db.DB.QueryRow(h.t.Context(), query, args...).Scan(&v))
	return v
}

// run changes rows by SQL, without the ledger and the manager.
func (h *env) run(statement string, args ...any) {
	h.t.Helper()
	tag, err := h.db.DB.Exec(h.t.Context(), statement, args...)
	if err != nil || tag.RowsAffected() == 0 {
		h.t.Fatalf("%s: got %v, %v; want rows changed", statement, tag, err)
	}
}

func (h *env) protect() {
	h.run(`insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`, h.payer)
}

// release ends the open PROTECT incident by SQL.
func (h *env) release() {
	h.run(`update protect_incident set closed_at = clock_timestamp(), closed_by = 'ann', mode = 'resume', reason = 'a false alarm'
		where submitter = $1 and closed_at is null`, h.payer)
}

// restore makes the database a restored copy.
func (h *env) restore() { h.run(`update database_identity set timeline_id = timeline_id + 1`) }

// paid returns the address's balance in the chain's coin, in wei.
func (h *env) paid() string {
	h.t.Helper()
	return h.wei(eip155.Address(common.HexToAddress(address))).String()
}

func (h *env) wantPaid(want string) {
	h.t.Helper()
	check.Equal(h.t, "paid", h.paid(), want)
}

// wei returns an account's balance in the chain's coin.
func (h *env) wei(of txmanager.Address) *big.Int {
	h.t.Helper()
	wei := check.Value(h.client.BalanceAt(h.t.Context(), common.Address(eip155.MustBytes(of)), nil))(h.t)
	return wei
}

// held returns the address's balance in a test contract.
func (h *env) held(contract string) string {
	h.t.Helper()
	word := check.Value(h.client.StorageAt(h.t.Context(), common.HexToAddress(contract), common.HexToHash(address), nil))(h.t)
	return new(big.Int).SetBytes(word).String()
}

// onePayment is 1.5 in the smallest unit of 18 decimals.
const onePayment = "1500000000000000000"

// awaitServed runs the payer's worker until the condition holds.
func (h *env) awaitServed(what string, holds func() bool) {
	h.t.Helper()
	h.await(what, func() bool {
		h.serve()
		return holds()
	})
}

// awaitMined makes a block after each run of the payer's worker until the condition holds.
func (h *env) awaitMined(what string, holds func() bool) {
	h.t.Helper()
	h.await(what, func() bool {
		h.serve()
		h.mine(1)
		return holds()
	})
}

func (h *env) await(what string, holds func() bool) {
	h.t.Helper()
	storetest.Await(h.t, what, holds)
}

// lost signs a transaction of an account that is not recorded here, and does not send it.
func (h *env) lost(a devchain.Account, n uint64, to string, wei string, data []byte) txmanager.Signed {
	h.t.Helper()
	amount, _ := new(big.Int).SetString(wei, 10)
	return chaintest.Sign(h.t, a.Key, h.chain.ChainID(), &types.DynamicFeeTx{
		Nonce: n, To: new(common.HexToAddress(to)), Gas: 200_000, Value: amount, Data: data, GasFeeCap: big.NewInt(50e9), GasTipCap: big.NewInt(2e9),
	})
}

// sends mines a transaction that is not recorded here, and returns its hash.
func (h *env) sends(a devchain.Account, n uint64, to string, wei string, data []byte) string {
	h.t.Helper()
	tx := h.lost(a, n, to, wei, data)
	check.OK(h.t)(h.chain.MineExactly(tx.Raw))
	return tx.Hash.String()
}

// outside mines a transaction of the payer that is not recorded here, as the lost database would
// have sent it. It returns the hash.
func (h *env) outside(n uint64, to string, wei string) string {
	h.t.Helper()
	return h.sends(accounts[0], n, to, wei, nil)
}

// deploy deploys the code, funds the user with the token, and makes it the token that is paid out.
func (h *env) deploy(code []byte) (contract string) {
	h.t.Helper()
	at := check.Value(contracts.Deploy(h.t.Context(), h.chain, accounts[2], code))(h.t)
	contract = at.String()
	h.asset(token, contract, h.payer)
	h.fund(token)
	return contract
}
