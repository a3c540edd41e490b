package acceptance

import (
	"encoding/json"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// useTheKey sends a transaction of the first dev account past the transaction manager, as a foreign
// signer would.
func (b bench) useTheKey(t *testing.T, n uint64, tipGwei int64) {
	t.Helper()
	client, err := ethclient.DialContext(b.ctx, b.Chain.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	gwei := big.NewInt(1_000_000_000)
	id := new(big.Int).SetUint64(b.Chain.ChainID())
	tx, err := types.SignNewTx(devchain.DevAccounts(1)[0].Key, types.LatestSignerForChainID(id), &types.DynamicFeeTx{
		ChainID: id, Nonce: n, To: &common.Address{0xba, 0xd0}, Value: big.NewInt(7), Gas: 21_000,
		GasTipCap: new(big.Int).Mul(gwei, big.NewInt(tipGwei)), GasFeeCap: new(big.Int).Mul(gwei, big.NewInt(100+tipGwei)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.SendTransaction(b.ctx, tx); err != nil {
		t.Fatalf("foreign transaction: %v", err)
	}
}

// inProtect waits until the submitter is in PROTECT and returns the incident.
func (b bench) inProtect(t *testing.T, s txmanager.Submitter) (incident int, evidence string) {
	t.Helper()
	err := poll(b.ctx, func() bool {
		return b.DB.QueryRow(b.ctx, `select incident, evidence::text from protect_incident where submitter = $1 and closed_at is null`, s).
			Scan(&incident, &evidence) == nil
	})
	if err != nil {
		t.Fatalf("%s never went into PROTECT: %v", s, err)
	}
	return incident, evidence
}

// release requests a release as an operator does, and repeats the call while the submitter is being
// served or nodes do not answer in time.
func (b bench) release(t *testing.T, s txmanager.Submitter, body map[string]any) (status int, text string) {
	t.Helper()
	return b.again(t, stack.OperatorAccount, http.MethodPost, "/admin/v1/submitters/"+string(s)+"/release", body)
}

// releaseOnce requests a release once, for tests of unanswered nodes.
func (b bench) releaseOnce(t *testing.T, s txmanager.Submitter, body map[string]any) (status int, text string) {
	t.Helper()
	err := poll(b.ctx, func() bool {
		code, answer, err := b.Call(b.ctx, stack.OperatorAccount, http.MethodPost, "/admin/v1/submitters/"+string(s)+"/release", body)
		status, text = code, string(answer)
		return err == nil && !strings.Contains(text, "NOT_LEADER")
	})
	if err != nil {
		t.Fatalf("release of %s: never answered, at last %d %s", s, status, text)
	}
	return status, text
}

// TX-008: a foreign transaction is noticed before allocation: PROTECT opens, new intents are refused,
// and nothing is sent. A named operator accepts the loss, and the sequence continues after it.
func TestTX008ForeignUseBeforeAllocation(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	b.useTheKey(t, 0, 1)
	if err := b.Chain.WaitBlock(b.ctx, b.Chain.Head()+2); err != nil {
		t.Fatal(err)
	}
	_, waiting := b.post(t, transfer(s, "waiting"))
	incident, evidence := b.inProtect(t, s)
	if !strings.Contains(evidence, `"expectedNonce": 0`) || !strings.Contains(evidence, `"latestCount": 1`) || !strings.Contains(evidence, `"node"`) {
		t.Errorf("evidence: got %s, want what was expected and what was seen, and from which node", evidence)
	}
	if !strings.Contains(evidence, `"consumingTx"`) || !strings.Contains(evidence, `"why": "AHEAD"`) {
		t.Errorf("evidence: got %s, want the transaction that took the nonce", evidence)
	}
	status, answer, err := b.Call(b.ctx, stack.CallerAccount, http.MethodPost, "/api/v1/tx", transfer(s, "refused"))
	if err != nil || status != http.StatusConflict || !strings.Contains(string(answer), `"SUBMITTER_PROTECTED"`) {
		t.Errorf("a new intent in PROTECT: got %d %s, %v; want 409 SUBMITTER_PROTECTED", status, answer, err)
	}
	if status, id := b.post(t, transfer(s, "waiting")); status != http.StatusOK || id != waiting { // H16
		t.Errorf("what is stored, posted again: got %d %s, want 200 %s", status, id, waiting)
	}
	if got := b.mined(t, s); !slices.Equal(got, []uint64{0}) {
		t.Errorf("mined: got %v, want the foreign one alone", got)
	}

	b.mine(t, 70) // the foreign transaction is finalized
	for name, body := range map[string]map[string]any{
		"no reason":        {"incident": incident, "mode": "resync", "count": 1},
		"a wrong count":    {"incident": incident, "mode": "resync", "count": 2, "reason": "r"},
		"no count":         {"incident": incident, "mode": "resync", "reason": "r"},
		"another mode":     {"incident": incident, "mode": "skip", "reason": "r"},
		"no such incident": {"incident": incident + 1, "mode": "resync", "count": 1, "reason": "r"},
	} {
		if status, answer := b.release(t, s, body); status != http.StatusBadRequest && status != http.StatusConflict {
			t.Errorf("release with %s: got %d %s, want it refused", name, status, answer)
		}
	}
	status, text := b.release(t, s, map[string]any{"incident": incident, "mode": "resync", "count": 1, "reason": "it was our own test", "requests": map[string]string{"0": "by hand"}})
	var released struct {
		Displaced []uint64
		NextNonce uint64
	}
	if err := json.Unmarshal([]byte(text), &released); err != nil || status != http.StatusOK || !slices.Equal(released.Displaced, []uint64{0}) || released.NextNonce != 1 {
		t.Fatalf("resync: got %d %s, want nonce 0 displaced, next nonce 1", status, text)
	}
	b.await(t, s, txmanager.Confirmed, 2) // the named request is one of them
	b.wantContiguous(t, s, 2)
	if _, err := b.DB.Exec(b.ctx, `update protect_incident set reason = 'another'`); err == nil {
		t.Error("a closed incident was rewritten: want it refused")
	}
}

// H9: an intent whose nonce a foreign transaction consumed while it was in flight ends DISPLACED at
// resync. It is never sent at another nonce; its caller may post a new request.
func TestH09TakenWhileInFlightEndsDisplaced(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	b.Chain.StopMining()
	_, id := b.post(t, transfer(s, "taken"))
	b.await(t, s, txmanager.Tracking, 1)
	b.Chain.DropPool()
	b.useTheKey(t, 0, 1)
	b.Chain.StartMining()
	incident, _ := b.inProtect(t, s)
	b.await(t, s, txmanager.Protect, 1)
	b.mine(t, 70)
	if status, text := b.release(t, s, map[string]any{"incident": incident, "mode": "resync", "count": 1, "reason": "the key was shared"}); status != http.StatusOK {
		t.Fatalf("resync: got %d %s", status, text)
	}
	if _, r := b.ask(t, stack.OperatorAccount, id); r.State != "FAILED" || *r.SubState != "DISPLACED" || *r.Nonce != 0 {
		t.Errorf("the intent: got %s, want FAILED/DISPLACED with nonce 0 kept", r.State)
	}
	b.post(t, transfer(s, "again"))
	b.await(t, s, txmanager.Confirmed, 1)
	b.wantContiguous(t, s, 2)
}

// H6: a release names the incident. Resume derives the state anew, and transactions in flight
// continue.
func TestH06ResumeGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	b.Chain.StopMining()
	b.post(t, transfer(s, "in flight"))
	b.await(t, s, txmanager.Tracking, 1)
	if _, err := b.DB.Exec(b.ctx, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{"what": "a false alarm"}')`, s); err != nil {
		t.Fatal(err)
	}
	b.Chain.StartMining()
	b.await(t, s, txmanager.Confirmed, 1) // polling continues and ends nothing
	var open int
	if err := b.DB.QueryRow(b.ctx, `select count(*) from protect_incident where closed_at is null`).Scan(&open); err != nil || open != 1 {
		t.Errorf("open incidents once the transaction is final: got %d, %v; want 1", open, err)
	}
	if status, text := b.release(t, s, map[string]any{"incident": 1, "mode": "resume", "reason": "a false alarm"}); status != http.StatusOK {
		t.Fatalf("resume: got %d %s", status, text)
	}
	b.post(t, transfer(s, "next"))
	b.await(t, s, txmanager.Confirmed, 2)
	b.wantContiguous(t, s, 2)
}

// H8, H9: the foreign transaction does the same as the intent and can have been the intent. The
// manager shows it, and calls nothing lost before an operator has named the request.
func TestH09ForeignTransactionThatDoesTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	b.Chain.StopMining()
	twin := transfer(s, "twin")
	twin["payload"] = map[string]any{"to": "0xbad0000000000000000000000000000000000000", "value": "7"}
	_, id := b.post(t, twin)
	b.await(t, s, txmanager.Tracking, 1)
	b.Chain.DropPool()
	b.useTheKey(t, 0, 1)
	b.Chain.StartMining()
	incident, evidence := b.inProtect(t, s)
	if !strings.Contains(evidence, `"sameAsIntent": true`) {
		t.Errorf("evidence: got %s, want it to say that the taker does the same", evidence)
	}
	var shown struct {
		Nonces []struct {
			Nonce       uint64
			ConsumingTx *struct{ Hash string }
			Intents     []struct{ TxID string }
		}
	}
	status, answer, err := b.Call(b.ctx, stack.OperatorAccount, http.MethodGet, "/admin/v1/submitters/"+string(s)+"/lost", nil)
	if err != nil || status != http.StatusOK || json.Unmarshal(answer, &shown) != nil || len(shown.Nonces) != 1 ||
		shown.Nonces[0].ConsumingTx == nil || len(shown.Nonces[0].Intents) != 1 || shown.Nonces[0].Intents[0].TxID != id {
		t.Errorf("lost: got %d %s, %v; want nonce 0, its taker and the intent %s", status, answer, err, id)
	}
	b.mine(t, 70)
	body := map[string]any{"incident": incident, "mode": "resync", "count": 1, "reason": "the key was shared"}
	if status, text := b.release(t, s, body); status != http.StatusBadRequest || !strings.Contains(text, `"requests"`) {
		t.Errorf("resync without its name: got %d %s, want 400 for requests", status, text)
	}
	body["requests"] = map[string]string{"0": "twin, sent by hand"}
	if status, text := b.release(t, s, body); status != http.StatusOK {
		t.Errorf("resync: got %d %s", status, text)
	}
}
