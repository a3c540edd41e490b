package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/transfer"
)

// A payout is found by the hash of its transaction, which the chain's explorer shows.
func TestPayoutIsFoundByItsHash(t *testing.T) {
	t.Parallel()
	h := setup(t)
	b := h.as(t, stack.OperatorAccount)
	b.open("/console/")
	b.find(h.paid)
	if !strings.HasPrefix(b.at(), "/console/tx/") {
		b.follow("/console/tx/")
	}
	b.shows("transaction", "CONFIRMED", h.transfer)
	b.follow("/console/transfers/" + h.transfer)
	b.shows("transfer", "COMMITTED", "0.5")
}

// By clicks alone: an operator finds a payout whose payment no node takes, and cancels the payment. The user has the
// money back.
func testPaymentIsCancelled(t *testing.T, h *deployment) {
	b := h.as(t, stack.OperatorAccount)
	h.refuseFrom(common.Address(eip155.MustBytes(h.PayerAccount().Address)))
	defer h.faults(rpcproxy.Faults{})
	users := must(h.UserClient(user))(t)
	paid := must(users.CreatePayout(t.Context(), client.PayoutRequest{Asset: stack.ETH.Name, Amount: "0.25", Address: receiver}))(t)
	path := "/console/transfers/" + paid.ReqID
	b.until(path, "TARGET_PENDING", string(client.Stuck))
	h.faults(rpcproxy.Faults{})
	b.follow("/resolve")
	b.shows("act", "Cancel the payment")
	b.suits(axeCore(t))
	b.fill("reason", "the user gave a wrong address")
	b.fill("confirm", paid.ReqID[len(paid.ReqID)-6:])
	b.submit("button")
	b.until(path, "ROLLED_BACK", "the user gave a wrong address")
	b.audited("transfer-resolve", "the user gave a wrong address", stack.OperatorAccount)
}

// refuseFrom makes the nodes refuse each transaction of the account.
func (h *deployment) refuseFrom(account common.Address) {
	h.faults(rpcproxy.Faults{Refuse: func(tx *types.Transaction) string {
		if from, err := types.Sender(types.LatestSignerForChainID(tx.ChainId()), tx); err == nil && from == account {
			return "tx fee (1.50 ether) exceeds the configured cap (1.00 ether)"
		}
		return ""
	}})
}

// By clicks alone: an operator checks conservation, which finds a balance without a journal line and halts new transfers.
// The operator adjusts the balance, and ends the halt.
func testWrongBalanceIsAdjusted(t *testing.T, h *deployment) {
	b := h.as(t, stack.OperatorAccount)
	u := h.NewUser(t)
	check(t, h.Deposit(u.Ctx, transfer.Funding, u.ID, stack.USDT.ID, 100))
	h.ChangeOne(t, `update balances_tb set available = available + 0.000001 where user_id = $1`, u.ID)
	b.checksConservation("Violated")
	b.follow("/console/conservation")
	b.shows("conservation", "BALANCE_DIFFERS", fmt.Sprint("user ", u.ID), "1 open")
	b.suits(axeCore(t))
	b.follow("/adjust")
	b.suits(axeCore(t))
	b.choose("move", "balance")
	b.fill("reason", "it was changed by hand")
	b.fill("confirm", b.label("confirm"))
	b.submit("button")
	b.checksConservation("Nothing is wrong")
	b.open("/console/conservation")
	b.follow("/resume")
	b.suits(axeCore(t))
	b.fill("reason", "the balance is right again")
	b.fill("confirm", b.label("confirm"))
	b.submit("button")
	b.shows("conservation", "No halt is open", "Nothing is wrong")
	b.audited("adjust", "it was changed by hand", stack.OperatorAccount)
	b.audited("halt-resume", "the balance is right again", stack.OperatorAccount)
}

// checksConservation presses the button that checks conservation now. The page has the text.
func (b *tab) checksConservation(want string) {
	b.t.Helper()
	b.open("/console/conservation")
	b.follow("/check")
	b.press("Check now")
	b.shows("check", want)
}
