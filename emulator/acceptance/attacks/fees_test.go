package attacks

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/params"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const (
	burnGas  = 5_181_960 // of calldata that is all used, also on an account without code
	receiver = "0x00000000000000000000000000000000000cafe0"
)

// burn returns a payload without value that pays price per gas for calldata. All but the base fee is a
// tip to the block's proposer.
func burn(price *big.Int) map[string]any {
	return map[string]any{
		"to": receiver, "value": "0", "data": "0x" + strings.Repeat("ff", 129_024), "gas": burnGas,
		"maxFeePerGas": price.String(), "maxPriorityFeePerGas": price.String(),
	}
}

func gwei(n int64) *big.Int { return new(big.Int).Mul(big.NewInt(n), big.NewInt(params.GWei)) }

// milliether is so many thousandths of an ether.
func milliether(n int64) *big.Int { return new(big.Int).Mul(big.NewInt(n), big.NewInt(1e15)) }

// posts posts the request as the shop.
func (h deployment) posts(t *testing.T, s txmanager.Submitter, request string, intent map[string]any) answer {
	t.Helper()
	whole := map[string]any{"submitter": s, "requestId": request}
	maps.Copy(whole, intent)
	return h.call(t, h.token(t, stack.CallerAccount), http.MethodPost, "/api/v1/tx", whole)
}

// accepted posts, and wants it taken.
func (h deployment) accepted(t *testing.T, s txmanager.Submitter, request string, payload map[string]any) (txID string) {
	t.Helper()
	a := h.posts(t, s, request, map[string]any{"payload": payload})
	if a.status != http.StatusAccepted {
		t.Fatalf("%s: got %v (%s), want 202", request, a, a.Detail)
	}
	return a.TxID
}

// becomes waits until the transaction is as wanted, and returns it.
func (h deployment) becomes(t *testing.T, txID, what string, met func(answer) bool) (a answer) {
	t.Helper()
	if acceptancetest.Wait(h.ctx, func() bool {
		a = h.call(t, h.token(t, stack.CallerAccount), http.MethodGet, "/api/v1/tx/"+txID, nil)
		return met(a)
	}) != nil {
		t.Fatalf("%s: got %s %s %q, want it %s", txID, a.State, a.SubState, a.LastError, what)
	}
	return a
}

// wantEnd waits until the transaction is final, and checks its state and sub-state.
func (h deployment) wantEnd(t *testing.T, what, txID, want string) answer {
	t.Helper()
	a := h.becomes(t, txID, "final", func(a answer) bool { return a.State == "CONFIRMED" || a.State == "FAILED" })
	if got := strings.TrimSpace(a.State + " " + a.SubState); got != want {
		t.Errorf("%s: got %s %q, want %s", what, got, a.LastError, want)
	}
	return a
}

func (h deployment) policy(t *testing.T, s txmanager.Submitter, terms map[string]any) {
	t.Helper()
	terms["reason"] = "locked"
	h.call(t, h.token(t, stack.OperatorAccount), http.MethodPut, "/admin/v1/submitters/"+string(s)+"/policy", terms).wantStatus(t, "policy", http.StatusOK)
}

func (h deployment) balance(t *testing.T, s txmanager.Submitter) *big.Int {
	t.Helper()
	return must(h.Node.BalanceAt(h.ctx, common.Address(eip155.MustBytes(s.Address())), nil))(t)
}

// A caller that asks for a tip near the maximum fee of a transaction pays the proposer only a multiple
// of the nodes' advice, even without a policy.
func TestATipIsBoundedWithoutAPolicy(t *testing.T) {
	t.Parallel()
	b := attacked(t, stack.Options{})
	s := b.Submitters()[0]
	advice := must(b.Node.SuggestGasTipCap(b.ctx))(t)
	most := new(big.Int).Mul(advice, big.NewInt(10))
	if most.Cmp(gwei(1)) < 0 {
		most = gwei(1)
	}
	before := b.balance(t, s)
	asked := gwei(140) // 0.73 ether
	b.wantEnd(t, "at a lower tip", b.accepted(t, s, "burn", burn(asked)), "CONFIRMED")
	lost := new(big.Int).Sub(before, b.balance(t, s))
	paid := new(big.Int).Div(lost, big.NewInt(burnGas))
	head := must(b.Node.HeaderByNumber(b.ctx, common.Big0))(t)
	bound := new(big.Int).Add(most, new(big.Int).Mul(head.BaseFee, common.Big2)) // the base fee only falls here
	t.Logf("lost %s wei, %s per gas, of %s asked for; the nodes advise %s", lost, paid, asked, advice)
	if paid.Cmp(bound) > 0 {
		t.Errorf("paid %s wei per gas, want at most %s", paid, bound)
	}
}

// Under a policy with no value and a fee limit, a caller cannot lower the balance by more than that
// limit. Its gas, its fees and the number of its calls do not matter.
func TestFeesOfACallerUnderAPolicy(t *testing.T) {
	t.Parallel()
	b := attacked(t, stack.Options{})
	s := b.Submitters()[0]
	limit := milliether(30)
	b.policy(t, s, map[string]any{"maxValue": "0", "targets": []string{receiver}, "maxFeePerTx": milliether(20).String(), "maxFeesPerDay": limit.String()})
	before := b.balance(t, s)
	for i := range 3 {
		a := b.posts(t, s, fmt.Sprintf("burn-%d", i), map[string]any{"payload": burn(gwei(140))})
		a.want(t, "a burn", "403 POLICY_REFUSED", "payload.maxFeePerGas")
	}
	var waiting string
	for i := range 6 { // at the limit of one transaction, until the day's fees are used up
		p := burn(gwei(3)) // 15.5 thousandths of an ether
		if i%2 == 1 {
			delete(p, "gas") // the same by an estimate
		}
		a := b.posts(t, s, fmt.Sprintf("slow burn-%d", i), map[string]any{"payload": p})
		if a.String() == "429 DAILY_AMOUNT_EXCEEDED" {
			continue
		}
		if a.status != http.StatusAccepted {
			t.Fatalf("a slow burn: got %v (%s), want it taken or 429", a, a.Detail)
		}
		if end := b.becomes(t, a.TxID, "final, or waiting for the fees of a day", func(a answer) bool {
			return a.State == "CONFIRMED" || strings.Contains(a.LastError, "fees of at most")
		}); end.State == "QUEUED" {
			waiting = a.TxID
			break
		}
	}
	lost := new(big.Int).Sub(before, b.balance(t, s))
	t.Logf("lost %s wei of a limit of %s", lost, limit)
	if lost.Cmp(limit) > 0 || lost.Sign() == 0 {
		t.Errorf("lost %s wei, want something, and at most %s", lost, limit)
	}
	if waiting == "" {
		t.Fatal("nothing waits for the fees of the day")
	}
	b.policy(t, s, map[string]any{"maxFeesPerDay": "0"}) // locked, by one setting
	b.wantEnd(t, "what waited when the account was locked", waiting, "FAILED REJECTED")
	b.post(t, b.token(t, stack.CallerAccount), s, "after").wantStatus(t, "a locked account", http.StatusForbidden)
}

// What a handler makes is held to the same limit: what it burns is a placeholder's fee.
func TestFeesOfAHandlerUnderAPolicy(t *testing.T) {
	t.Parallel()
	transaction := must(json.Marshal(map[string]any{"transaction": burn(gwei(140))}))(t)
	service := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) { _, _ = w.Write(transaction) })
	b := attacked(t, stack.Options{Settings: map[string]string{"FENCEPOST_HANDLERS_URLS": "feeburn=" + service.URL, "FENCEPOST_HANDLERS_SECRETS": "feeburn=whsec_" + strings.Repeat("QUJD", 8)}})
	s := b.Submitters()[0]
	must(b.DB.Exec(b.ctx, `update submitter set callers = callers || '{handler:feeburn}'`))(t)
	limit := milliether(20)
	b.policy(t, s, map[string]any{"maxValue": "5", "maxFeePerTx": limit.String()})
	before := b.balance(t, s)
	a := b.posts(t, s, "made", map[string]any{"handler": "feeburn", "payload": map[string]any{}})
	if a.status != http.StatusAccepted {
		t.Fatalf("made: got %v (%s), want 202", a, a.Detail)
	}
	if end := b.wantEnd(t, "made", a.TxID, "FAILED PLACEHOLDER"); !strings.Contains(end.LastError, "a fee of at most "+limit.String()) {
		t.Errorf("made: got %q, want a placeholder by the policy's fee", end.LastError)
	}
	lost := new(big.Int).Sub(before, b.balance(t, s))
	t.Logf("lost %s wei of a limit of %s", lost, limit)
	if lost.Cmp(limit) > 0 {
		t.Errorf("lost %s wei, want at most %s", lost, limit)
	}
}

// txFeeCap refuses as go-ethereum does by default what may cost more than an ether.
func txFeeCap(tx *types.Transaction) string {
	fee := new(big.Int).Mul(tx.GasFeeCap(), new(big.Int).SetUint64(tx.Gas()))
	if fee.Cmp(milliether(1000)) <= 0 {
		return ""
	}
	ether, _ := new(big.Rat).SetFrac(fee, milliether(1000)).Float64()
	return fmt.Sprintf("tx fee (%.2f ether) exceeds the configured cap (1.00 ether)", ether)
}

// An intent at the ceiling whose fee no node sends gets no nonce, and the next goes on.
func TestAFeeThatNoNodeSendsGetsNoNonce(t *testing.T) {
	t.Parallel()
	b := attacked(t, stack.Options{RPCProxy: true})
	b.RPC.SetFaults(rpcproxy.Faults{Refuse: txFeeCap})
	s := b.Submitters()[0]
	a := b.posts(t, s, "freezes", map[string]any{"payload": burn(gwei(500))})
	a.want(t, "2.59 ether of fees", "400 INVALID_FIELD", "payload.maxFeePerGas")
	estimated := burn(gwei(500))
	delete(estimated, "gas")
	b.wantEnd(t, "with an estimate, within what nodes send", b.accepted(t, s, "estimated", estimated), "CONFIRMED")
	b.wantEnd(t, "the next", b.accepted(t, s, "next", map[string]any{"to": receiver, "value": "1"}), "CONFIRMED")
}

// If the deployment allows a higher fee than its nodes send, the transaction is STUCK at once and says
// why. The caller's cancel and the operator's placeholder each end it, and the next intent continues.
// All pay the highest allowed fee.
func TestAFeeAboveTheNodesCapCanBeEnded(t *testing.T) {
	t.Parallel()
	b := attacked(t, stack.Options{RPCProxy: true, Settings: map[string]string{"FENCEPOST_FEES_MAX_FEE_PER_TX": "5000000000000000000"}})
	b.RPC.SetFaults(rpcproxy.Faults{Refuse: txFeeCap})
	for i, end := range []func(txID string) answer{
		func(id string) answer {
			return b.call(t, b.token(t, stack.CallerAccount), http.MethodPost, "/api/v1/tx/"+id+"/cancel", nil)
		},
		func(id string) answer {
			decision := map[string]any{"action": "placeholder", "reason": "no node sends it"}
			return b.call(t, b.token(t, stack.OperatorAccount), http.MethodPost, "/admin/v1/tx/"+id+"/decide", decision)
		},
	} {
		s := b.Submitters()[i]
		id := b.accepted(t, s, "freezes", burn(gwei(500)))
		next := b.accepted(t, s, "next", map[string]any{"to": receiver, "value": "1"})
		a := b.becomes(t, id, "STUCK", func(a answer) bool { return a.State == "STUCK" || a.State == "FAILED" })
		if a.State != "STUCK" || !strings.HasPrefix(a.LastError, "over_node_cap: ") {
			t.Fatalf("refused by the node: got %s %s %q, want STUCK with over_node_cap", a.State, a.SubState, a.LastError)
		}
		if a := end(id); a.status != http.StatusAccepted {
			t.Fatalf("end it: got %v (%s), want 202", a, a.Detail)
		}
		b.wantEnd(t, "ended", id, "FAILED PLACEHOLDER")
		b.wantEnd(t, "the next", next, "CONFIRMED")
	}
}
