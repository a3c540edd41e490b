package acceptance

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// One deployment serves two chains with the same keys. Each account has a nonce sequence on each
// chain, and each chain has its own finality. An address without a prefix is on the default chain. A
// chain that is not served has no submitters.
func TestTwoChainsOneKey(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{TwoChains: true, Processes: 2, Settings: quick})
	const n = 4
	ids := make(map[txmanager.Submitter]string)
	for i, s := range b.Submitters() {
		for _, on := range []txmanager.Submitter{s, b.OnSecond()[i]} {
			for _, name := range []string{"a", "b", "c", "d"} { // the same requestIds on both
				status, id := b.post(t, transfer(on, name))
				equal(t, fmt.Sprintf("post %s of %s", name, on), status, http.StatusAccepted)
				ids[on] = id
			}
		}
	}
	b.finish(t)
	for s, id := range ids {
		b.wantContiguous(t, s, n)
		_, r := b.ask(t, stack.CallerAccount, id)
		want := 2 // the receipt's block and confirmations.required
		if s.ChainID() == b.Second.ChainID() {
			want = 3
		}
		if r.State != "CONFIRMED" || len(r.Confirmations) != want {
			t.Errorf("%s: got %s with %d blocks, want CONFIRMED with %d", s, r.State, len(r.Confirmations), want)
		}
	}
	s := b.Submitters()[0]
	_, again := b.post(t, map[string]any{"submitter": s.Address().String(), "requestId": "d", "payload": transfer(s, "")["payload"]})
	if again != ids[s] {
		t.Errorf("a bare address: got transaction %s, want %s of the default chain", again, ids[s])
	}
	elsewhere := strings.Replace(string(s), ":1337:", ":7:", 1)
	registration := map[string]any{"submitter": elsewhere, "callers": []string{"email:" + stack.CallerAccount}}
	b.call(t, stack.OperatorAccount, http.MethodPost, "/admin/v1/submitters", registration).want("register on chain 7", http.StatusBadRequest, "1337, 1338")
	b.calm(t)
}

// If one chain's node is down, work on the other chain continues, and the sweep reports the query that
// failed.
func TestOneChainIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{TwoChains: true, Settings: quick})
	check(t, b.Second.Close())
	s, away := b.Submitters()[0], b.OnSecond()[0]
	b.post(t, transfer(away, "waits"))
	b.post(t, transfer(s, "goes on"))
	b.await(t, s, txmanager.Confirmed, 1)
	b.await(t, away, txmanager.Queued, 1)
	if err := b.RunSweep(b.ctx); err == nil {
		t.Error("sweep: got no error, want one: a chain could not be asked")
	}
	b.calm(t)
}

// While one chain's node does not answer, the sweep still checks another chain's final blocks and
// records its submitters' balances. An unresponsive chain uses only its own share of time.
func TestSweepWithOneChainSilent(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{TwoChains: true, RPCProxy: true, Submitters: 1, Processes: 1, Settings: map[string]string{
		"FENCEPOST_TASKS_DISPATCH_DEADLINE": "15s", "FENCEPOST_TELEMETRY_BALANCES": "5",
	}})
	s := b.OnSecond()[0]
	b.post(t, transfer(s, "ends"))
	b.await(t, s, txmanager.Confirmed, 1)
	b.finish(t)
	b.RPC.SetFaults(rpcproxy.Faults{Hang: 1})
	b.Second.StopMining()
	depth := b.Second.Head() // all of it
	check(t, b.Second.Reorg(depth, make([][][]byte, depth+1)...))
	b.Second.DropPool()
	gauge := `fencepost_submitter_balance_gwei{submitter="` + string(s) + `"}`
	b.until(t, fmt.Sprintf("gauges: got none of the balance of %s", s), func() bool { // a slow machine can need several sweeps to read the balance
		if err := b.RunSweep(b.ctx); err == nil {
			t.Error("sweep: got no error, want one: a chain gave no answer")
		}
		_, text := b.page(t)
		return strings.Contains(text, gauge)
	})
	b.Second.StartMining()
	b.inProtect(t, s, `"why": "REORG"`)
}

// With chains.enabled off, the default, a deployment serves one chain. Another chain has no
// submitters, and its intents are refused.
func TestChainsOffServesNoOther(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Submitters: 1})
	s := b.Submitters()[0]
	elsewhere := eip155.NewSubmitter(stack.SecondChainID, s.Address())
	for path, c := range map[string]struct {
		account string
		body    map[string]any
		status  int
		says    string
	}{
		"/admin/v1/submitters": {stack.OperatorAccount, map[string]any{"submitter": elsewhere, "callers": []string{"email:" + stack.CallerAccount}}, http.StatusBadRequest, "1337"},
		"/api/v1/tx":           {stack.CallerAccount, transfer(elsewhere, "a"), http.StatusNotFound, "UNKNOWN_SUBMITTER"},
	} {
		b.call(t, c.account, http.MethodPost, path, c.body).want("POST "+path+" for another chain", c.status, c.says)
	}
	b.wantPost(t, "post for "+string(s), transfer(s, "a"), http.StatusAccepted)
	b.await(t, s, txmanager.Confirmed, 1)
}
