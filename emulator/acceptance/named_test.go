package acceptance

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/nonce"
)

// payByHand sends so many wei to an address at nonce n with the key of the first dev
// account, past the house.
func (b bench) payByHand(t *testing.T, n uint64, to common.Address, wei int64) {
	t.Helper()
	client, err := ethclient.DialContext(b.ctx, b.Chain.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	id := new(big.Int).SetUint64(b.Chain.ChainID())
	tx, err := types.SignNewTx(devchain.DevAccounts(1)[0].Key, types.LatestSignerForChainID(id), &types.DynamicFeeTx{
		ChainID: id, Nonce: n, To: &to, Value: big.NewInt(wei), Gas: 21_000, GasTipCap: big.NewInt(1e9), GasFeeCap: big.NewInt(200e9),
	})
	if err == nil {
		err = client.SendTransaction(b.ctx, tx)
	}
	if err != nil {
		t.Fatalf("transaction by hand at nonce %d: %v", n, err)
	}
}

// received is what an address has on the chain, in wei.
func (b bench) received(t *testing.T, to common.Address) int64 {
	t.Helper()
	client, err := ethclient.DialContext(b.ctx, b.Chain.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	wei, err := client.BalanceAt(b.ctx, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	return wei.Int64()
}

// orderTo is a request that pays so many wei to an address.
func orderTo(s nonce.Submitter, requestID string, to common.Address, wei int64) map[string]any {
	body := transfer(s, requestID)
	body["payload"] = map[string]any{"to": strings.ToLower(to.Hex()), "value": fmt.Sprint(wei)}
	return body
}

// What a release names never runs again, at whatever nonce it is named, and its caller
// hears the truth: by cancel, by its request, and by posting it again.
func TestANamedRequestIsExecutedOnceAndItsCallerHearsIt(t *testing.T) {
	t.Parallel()
	for _, window := range []int{1, 8} {
		t.Run(fmt.Sprintf("window %d", window), func(t *testing.T) {
			t.Parallel()
			b := setup(t, stack.Options{Window: window})
			s := b.Submitters()[0]
			to := func(i int) common.Address { return common.Address{0xca, 0xfe, byte(i + 1)} }
			b.Chain.StopMining()
			var ids []string
			for i := range 12 {
				_, id := b.post(t, orderTo(s, fmt.Sprintf("named-%d", i), to(i), 1000))
				ids = append(ids, id)
			}
			b.await(t, s, nonce.Tracking, window)
			b.Chain.DropPool()
			b.payByHand(t, 0, to(11), 1000) // named-11, by a person
			b.payByHand(t, 1, to(20), 777)  // a request that was lost with the database
			b.Chain.StartMining()
			episode, _ := b.inProtect(t, s)
			b.mine(t, 70)
			body := map[string]any{"episode": episode, "mode": "resync", "count": 2, "reason": "paid by hand"}
			if status, text := b.release(t, s, body); status != http.StatusBadRequest || !strings.Contains(text, "named-11") {
				t.Fatalf("without the name: got %d %s, want 400 with named-11", status, text)
			}
			body["requests"] = map[string]string{"0": "named-11", "1": "lost", "9": "named-3"}
			if status, text := b.release(t, s, body); status != http.StatusBadRequest || !strings.Contains(text, "nonce 9") {
				t.Fatalf("a name that would do nothing: got %d %s, want 400 with nonce 9", status, text)
			}
			body["requests"] = map[string]string{"1": "lost"}
			body["others"] = "matching"
			status, text := b.release(t, s, body)
			var released struct{ Named []nonce.Naming }
			if err := json.Unmarshal([]byte(text), &released); err != nil || status != http.StatusOK || len(released.Named) != 2 ||
				released.Named[0].RequestID != "named-11" || released.Named[0].Effect != nonce.NamedRecorded {
				t.Fatalf("resync: got %d %s, want what each name did", status, text)
			}
			b.wantRecorded(t, ids[11])
			b.wantLostIsTold(t, s)
			if err := poll(b.ctx, func() bool {
				var open int
				err := b.DB.QueryRow(b.ctx, `select count(*) from managed_tx where state not in ('CONFIRMED', 'FAILED')`).Scan(&open)
				return err == nil && open == 0
			}); err != nil {
				t.Fatalf("not everything ended: %v", err)
			}
			for i := range 12 {
				want := int64(1000)
				if i < min(window, 2) { // held a nonce that was lost
					want = 0
				}
				if got := b.received(t, to(i)); got != want {
					t.Errorf("named-%d: got %d wei on the chain, want %d", i, got, want)
				}
			}
			if got := b.received(t, to(20)); got != 777 {
				t.Errorf("the lost request: got %d wei on the chain, want 777, once", got)
			}
		})
	}
}

// wantRecorded holds the answers about a named request against its end.
func (b bench) wantRecorded(t *testing.T, id string) {
	t.Helper()
	status, answer, err := b.Call(b.ctx, stack.CallerAccount, http.MethodPost, "/api/v1/tx/"+id+"/cancel", nil)
	if err != nil || status != http.StatusOK || !strings.Contains(string(answer), `"EXECUTED"`) || !strings.Contains(string(answer), `"RECORDED"`) {
		t.Errorf("cancel of what was named: got %d %s, %v; want EXECUTED, RECORDED", status, answer, err)
	}
	status, answer, err = b.Call(b.ctx, stack.CallerAccount, http.MethodGet, "/api/v1/tx/"+id, nil)
	var r struct {
		State, SubState, TxHash string
		Receipt                 *struct{ TxHash string }
	}
	if err != nil || json.Unmarshal(answer, &r) != nil || status != http.StatusOK || r.State != "CONFIRMED" || r.SubState != "RECORDED" || r.Receipt == nil || r.TxHash == "" || r.Receipt.TxHash != r.TxHash {
		t.Errorf("what was named: got %d %s, %v; want CONFIRMED/RECORDED with hash and receipt", status, answer, err)
	}
}

// wantLostIsTold holds the answers about a request that was lost and named.
func (b bench) wantLostIsTold(t *testing.T, s nonce.Submitter) {
	t.Helper()
	status, answer, err := b.Call(b.ctx, stack.CallerAccount, http.MethodPost, "/api/v1/tx", transfer(s, "lost"))
	if err != nil || status != http.StatusConflict || !strings.Contains(string(answer), `"REQUEST_RECORDED"`) || !strings.Contains(string(answer), "0x") {
		t.Errorf("the lost request, posted again: got %d %s, %v; want 409 REQUEST_RECORDED with its hash", status, answer, err)
	}
	status, answer, err = b.Call(b.ctx, stack.CallerAccount, http.MethodGet, "/api/v1/tx/by-request?submitter="+string(s)+"&requestId=lost", nil)
	if err != nil || status != http.StatusOK || !strings.Contains(string(answer), `"RECORDED"`) {
		t.Errorf("the lost request, asked for: got %d %s, %v; want 200, RECORDED", status, answer, err)
	}
}

// More than a hundred nonces are lost: they are shown page by page, the release judges
// all of them, and nothing that matches runs a second time.
func TestManyLostNoncesAreShownAndJudged(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	const lost = 105
	to := func(i int) common.Address { return common.Address{0xda, 0xda, byte(i + 1)} }
	b.Chain.StopMining()
	for i := range 30 { // the last 30 of them are requests here, too, accepted before PROTECT
		b.post(t, orderTo(s, fmt.Sprintf("many-%d", lost-1-i), to(lost-1-i), 1000))
	}
	b.await(t, s, nonce.Tracking, 1)
	b.Chain.DropPool()
	for i := range lost {
		b.payByHand(t, uint64(i), to(i), 1000)
	}
	b.Chain.StartMining()
	episode, _ := b.inProtect(t, s)
	if err := poll(b.ctx, func() bool { return len(b.mined(t, s)) == lost }); err != nil {
		t.Fatalf("mined: got %d, want %d: %v", len(b.mined(t, s)), lost, err)
	}
	b.mine(t, 70)
	shown, from := 0, "0"
	for range 10 {
		var page struct {
			Nonces   []struct{ Intents []struct{ RequestID string } }
			NextFrom *uint64
		}
		_, answer, err := b.Call(b.ctx, stack.OperatorAccount, http.MethodGet, "/admin/v1/submitters/"+string(s)+"/lost?from="+from, nil)
		if err != nil || json.Unmarshal(answer, &page) != nil {
			t.Fatalf("lost from %s: got %s, %v", from, answer, err)
		}
		if shown += len(page.Nonces); page.NextFrom == nil {
			break
		}
		from = fmt.Sprint(*page.NextFrom)
	}
	if shown != lost {
		t.Errorf("pages: got %d nonces, want %d", shown, lost)
	}
	body := map[string]any{"episode": episode, "mode": "resync", "count": lost, "reason": "paid by hand"}
	var status int
	var text string
	judged := func() bool { // not before all were read: then 503, or it says what is not known
		status, text = b.release(t, s, body)
		return status != http.StatusServiceUnavailable && !strings.Contains(text, "is not known")
	}
	_ = poll(b.ctx, judged)
	if status != http.StatusBadRequest || !strings.Contains(text, "many-104") {
		t.Fatalf("nothing named: got %d %s, want 400 by name", status, text)
	}
	body["others"] = "matching"
	if _ = poll(b.ctx, judged); status != http.StatusOK {
		t.Fatalf("others matching: got %d %s", status, text)
	}
	b.await(t, s, nonce.Confirmed, 30)
	b.mine(t, 5)
	for i := range lost {
		if got := b.received(t, to(i)); got != 1000 {
			t.Errorf("nonce %d: got %d wei on the chain, want 1000, once", i, got)
		}
	}
}
