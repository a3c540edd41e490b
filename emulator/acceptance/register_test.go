package acceptance

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
)

// counted waits until the node's latest and pending counts of the account have these values. The pool
// processes received transactions with a delay.
func (b bench) counted(t *testing.T, a devchain.Account, latest, pending uint64) {
	t.Helper()
	b.until(t, fmt.Sprintf("the account's counts never were %d and %d", latest, pending), func() bool {
		mined, err := b.Node.NonceAt(b.ctx, common.Address(eip155.MustBytes(a.Address)), nil)
		all, err2 := b.Node.PendingNonceAt(b.ctx, common.Address(eip155.MustBytes(a.Address)))
		return err == nil && err2 == nil && mined == latest && all == pending
	})
}

// delegates gives the account code by a self-sent delegation (EIP-7702), at nonces n and n+1.
func (b bench) delegates(t *testing.T, a devchain.Account, n uint64) {
	t.Helper()
	auth := types.SetCodeAuthorization{Address: common.Address{0xc0, 0xde}, Nonce: n + 1}
	id, tip, most, value := auth.ChainID, auth.ChainID, auth.ChainID, auth.ChainID
	id.SetUint64(b.Chain.ChainID())
	tip.SetUint64(1_000_000_000)
	most.SetUint64(100_000_000_000)
	auth.ChainID = id
	auth = must(types.SignSetCode(a.Key, auth))(t)
	b.byHand(t, a, &types.SetCodeTx{ChainID: &id, Nonce: n, To: common.Address(eip155.MustBytes(a.Address)), Gas: 100_000, Value: &value,
		GasTipCap: &tip, GasFeeCap: &most, AuthList: []types.SetCodeAuthorization{auth}})
}

// registers requests, as an operator, a registration that starts at a nonce.
func (b bench) registers(t *testing.T, a devchain.Account, start uint64) (status int, answer string) {
	t.Helper()
	body := map[string]any{"submitter": eip155.NewSubmitter(b.Chain.ChainID(), a.Address), "callers": []string{"email:" + stack.CallerAccount}, "startNonce": start, "policy": "unlimited"}
	if start > 0 {
		body["reason"] = "it was used by hand before"
	}
	got := b.call(t, stack.OperatorAccount, http.MethodPost, "/admin/v1/submitters", body)
	return got.status, got.text
}

// refusesToRegister requires 400 INVALID_FIELD for the field, with all of these words.
func (b bench) refusesToRegister(t *testing.T, what string, a devchain.Account, start uint64, field string, words ...string) {
	t.Helper()
	status, answer := b.registers(t, a, start)
	for _, word := range append(words, "INVALID_FIELD", `"field":"`+field+`"`) {
		if status != http.StatusBadRequest || !strings.Contains(answer, word) {
			t.Errorf("%s, from %d on: got %d %s, want 400 with %q", what, start, status, answer, word)
		}
	}
	b.wantCount(t, fmt.Sprintf("%s, from %d on: it is registered", what, start), 0, `select count(*) from submitter where submitter = $1`, eip155.NewSubmitter(b.Chain.ChainID(), a.Address))
}

// An account is registered only at the chain's own count, with nothing pending and without code. A
// refusal names both numbers.
func TestRegistrationIsComparedWithTheChain(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Submitters: 1, Processes: 1})
	accounts := devchain.DevAccounts(3)
	used, pending := accounts[1], accounts[2]
	for n := range uint64(2) {
		b.byHand(t, used, b.Payment(n, unused, 1, 1))
	}
	b.counted(t, used, 2, 2)
	b.refusesToRegister(t, "an account that was used twice", used, 0, "startNonce", "is 0", "count of the account is 2")
	b.refusesToRegister(t, "an account that was used twice", used, 1, "startNonce", "is 1", "count of the account is 2")
	b.refusesToRegister(t, "an account that was used twice", used, 3, "startNonce", "is 3", "count of the account is 2")
	if status, answer := b.registers(t, used, 2); strings.Contains(answer, "startNonce\"") && status != http.StatusCreated {
		t.Errorf("an account that was used twice, from 2 on: got %d %s, want that the chain is no reason against it", status, answer)
	}

	b.Chain.StopMining()
	b.byHand(t, pending, b.Payment(0, unused, 1, 1))
	b.counted(t, pending, 0, 1)
	b.refusesToRegister(t, "an account with one pending", pending, 0, "startNonce", "1 pending transactions")
	b.refusesToRegister(t, "an account with one pending", pending, 1, "startNonce", "is 1", "count of the account is 0")
	b.Chain.StartMining()
	b.counted(t, pending, 1, 1)

	b.delegates(t, pending, 1)
	b.counted(t, pending, 3, 3)
	b.refusesToRegister(t, "an account with code", pending, 3, "submitter", "has code or a delegation")
}

// The first of three nodes is on a fork on which the account was never used. The quorum decides, and
// without a quorum nothing is registered.
func TestRegistrationAsksAQuorumOfNodes(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Nodes: 3, Submitters: 1, Processes: 1, Settings: nodesQuick})
	used := devchain.DevAccounts(2)[1]
	b.byHand(t, used, b.Payment(0, unused, 1, 1))
	b.counted(t, used, 1, 1)
	b.Nodes[0].SetTarget(b.fork(t, 0).URL())
	b.refusesToRegister(t, "unused on the first node alone", used, 0, "startNonce", "is 0", "count of the account is 1")
	for _, n := range b.Nodes[1:] {
		n.SetFaults(rpcproxy.Faults{Unavailable: 1})
	}
	if status, answer := b.registers(t, used, 0); status != http.StatusServiceUnavailable || !strings.Contains(answer, "do not agree") {
		t.Errorf("with one node of three: got %d %s, want 503 and why", status, answer)
	}
	b.wantCount(t, "registered", 1, `select count(*) from submitter`)
}
