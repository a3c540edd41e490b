package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/params"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
)

// walker is a person at a shell, who calls the API and has a block explorer, but cannot read the database.
type walker struct {
	t        *testing.T
	ctx      context.Context
	stack    *stack.Stack
	explorer *ethclient.Client

	account devchain.Account
	sub     string // the submitter that the person registers

	receiver *receiver
}

// object is a JSON object.
type object = map[string]any

// A person registers a submitter, changes it, finds out why its queue waits, decides about a STUCK transaction and
// solves a PROTECT, all by the API.
func TestWalkByTheAPIAlone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	hook := startReceiver(t)
	d := acceptancetest.StartFor(ctx, t, stack.Options{
		Binary: acceptancetest.Server.Path, Signer: stack.SignerKMS, Submitters: 1, BlockTime: 250 * time.Millisecond, SweepEvery: 2 * time.Second, RPCProxy: true, Transfers: true, Core: stack.CoreOptions{Binary: must(ubscore.Build(t.Context(), t.TempDir()))(t)},
		Settings: withSettings(quick, map[string]string{
			"FENCEPOST_NONCE_STRICT_ENABLED": "false", "FENCEPOST_TELEMETRY_BALANCES": "3", "FENCEPOST_EVENTS_MODE": "webhook", "FENCEPOST_EVENTS_WEBHOOK_TIMEOUT": "900ms",
			"FENCEPOST_EVENTS_WEBHOOK_URLS": "shop=" + hook.url, "FENCEPOST_EVENTS_WEBHOOK_SECRETS": "shop=" + shopSecret,
		}),
	})
	w := &walker{receiver: hook, t: t, ctx: ctx, stack: d.Stack, explorer: d.Node, account: d.PayerAccount()}
	w.sub = string(eip155.NewSubmitter(d.Chain.ChainID(), w.account.Address))
	for _, step := range []func(){w.register, w.change, w.unpaid, w.tooDear, w.deferred, w.stuck, w.protect, w.payOut, w.receiverDown, w.readsViews, w.readsMetrics} {
		step()
	}
}

// get reads a path as an operator, until the answer is 200 and has all of the texts. It returns the answer.
func (w *walker) get(what, path string, texts ...string) object {
	w.t.Helper()
	return w.read(stack.OperatorAccount, what, path, texts...)
}

func (w *walker) read(account, what, path string, texts ...string) (got object) {
	w.t.Helper()
	return w.until(what, path, func() (int, []byte, error) { return w.stack.Call(w.ctx, account, http.MethodGet, path, nil) }, texts...)
}

// until makes a call until the answer is a success and has all of the texts.
func (w *walker) until(what, path string, call func() (int, []byte, error), texts ...string) (got object) {
	w.t.Helper()
	last := ""
	if err := poll(w.ctx, func() bool {
		status, answer, err := call()
		last = fmt.Sprint(status, " ", string(answer), err)
		for _, text := range texts {
			if !strings.Contains(last, text) {
				return false
			}
		}
		got = nil
		return err == nil && status < 300 && json.Unmarshal(answer, &got) == nil
	}); err != nil {
		w.t.Fatalf("%s: %s: got %s, want %q", what, path, last, texts)
	}
	return got
}

// does makes an operator's call, again while the answer asks for that. The answer must have the status and the texts.
func (w *walker) does(what, method, path string, body any, status int, texts ...string) {
	w.t.Helper()
	w.as(stack.OperatorAccount, what, method, path, body, status, texts...)
}

func (w *walker) as(account, what, method, path string, body any, status int, texts ...string) (text string) {
	w.t.Helper()
	var a answered
	err := poll(w.ctx, func() bool {
		got, answer, err := w.stack.Call(w.ctx, account, method, path, body)
		a = answered{w.t, got, string(answer), err}
		return err == nil && got < http.StatusInternalServerError && !strings.Contains(a.text, "NOT_LEADER")
	})
	check(w.t, err, what, a.text)
	if a.want(what, status, texts...); a.status != status {
		w.t.FailNow()
	}
	return a.text
}

// posts posts an intent as a caller, and returns its txId.
func (w *walker) posts(account, requestID string, payload object) (txID string) {
	w.t.Helper()
	text := w.as(account, "post "+requestID, http.MethodPost, "/api/v1/tx", object{"submitter": w.sub, "requestId": requestID, "payload": payload}, http.StatusAccepted, `"txId":"`)
	var created struct{ TxID string }
	check(w.t, json.Unmarshal([]byte(text), &created), text)
	return created.TxID
}

// pays posts a transfer of one wei.
func (w *walker) pays(requestID string) (txID string) {
	w.t.Helper()
	return w.posts(stack.CallerAccount, requestID, object{"to": cafe0, "value": "1"})
}

func (w *walker) ends(what, txID string, texts ...string) {
	w.t.Helper()
	w.read(stack.CallerAccount, what, "/api/v1/tx/"+txID, texts...)
}

func (w *walker) confirmed(what, txID string) {
	w.t.Helper()
	w.ends(what, txID, `"state":"CONFIRMED"`)
}

// why reads why a transaction waits: the cause, the page about it, and what a person can do.
func (w *walker) why(txID, cause, page string, texts ...string) {
	w.t.Helper()
	w.get("why it waits", "/admin/v1/tx/"+txID+"/why", append(texts, `"cause":"`+cause+`"`, `"runbook":"docs/runbooks/`+page+`.md"`, `"nextActor":"`, `"action":"`, `"since":"`)...)
}

// attends finds one item in what needs a person, and reads what it says.
func (w *walker) attends(kind, page string, texts ...string) {
	w.t.Helper()
	w.get("what needs a person", "/admin/v1/attention", append(texts, `"kind":"`+kind+`"`, `"runbook":"docs/runbooks/`+page+`.md"`)...)
}

// calm waits until nothing needs a person.
func (w *walker) calm() {
	w.t.Helper()
	w.get("nothing needs a person", "/admin/v1/attention", `"items":[]`)
}

// cancels cancels an intent that has no nonce.
func (w *walker) cancels(txID string) {
	w.t.Helper()
	w.as(stack.CallerAccount, "cancel", http.MethodPost, "/api/v1/tx/"+txID+"/cancel", nil, http.StatusOK, `"CANCELLED"`)
}

func (w *walker) ofSub(what string) string { return "/admin/v1/submitters/" + w.sub + what }

// register finds the account of a key by a refusal, registers it, and sees a first transaction to its end.
func (w *walker) register() {
	signer := "kms:" + w.stack.KMS.Add("hot", w.account.Key)
	registration := func(submitter string) object {
		return object{"submitter": submitter, "signer": signer, "callers": []string{"email:" + stack.CallerAccount}, "policy": object{"maxValue": "100000000000000000000000000"}}
	}
	stranger := string(eip155.NewSubmitter(w.stack.Chain.ChainID(), eip155.Address([20]byte{19: 1})))
	w.does("another account than the key's", http.MethodPost, "/admin/v1/submitters", registration(stranger), http.StatusBadRequest, w.account.Address.String())
	w.does("register", http.MethodPost, "/admin/v1/submitters", registration(w.sub), http.StatusCreated, w.sub)
	w.get("the list", "/admin/v1/submitters", w.sub)
	w.confirmed("the first transaction", w.pays("first"))
}

// change widens the window, gives a name, lets a second caller in, and reads who changed what.
func (w *walker) change() {
	w.does("change", http.MethodPatch, w.ofSub(""), object{"maxInFlight": 2, "name": "hot wallet", "reason": "more at once"}, http.StatusOK, `"maxInFlight":2`, `"name":"hot wallet"`)
	second := object{"submitter": w.sub, "requestId": "second", "payload": object{"to": cafe0, "value": "1"}}
	w.as(stack.SecondAccount, "not a caller yet", http.MethodPost, "/api/v1/tx", second, http.StatusNotFound, "UNKNOWN_SUBMITTER")
	callers := []string{"email:" + stack.CallerAccount, "email:" + stack.SecondAccount}
	w.does("callers", http.MethodPut, w.ofSub("/callers"), object{"callers": callers, "reason": "a second shop"}, http.StatusOK, callers[1])
	w.read(stack.SecondAccount, "of the second caller", "/api/v1/tx/"+w.posts(stack.SecondAccount, "second", object{"to": cafe0, "value": "1"}), `"state":"CONFIRMED"`)
	w.get("all acts", "/admin/v1/audit", "more at once", "a second shop", stack.OperatorAccount)
	w.get("the changes", w.ofSub("/changes"), `"reason":"more at once"`, `"reason":"a second shop"`, stack.OperatorAccount, callers[1])
}

// unpaid: the head of the queue costs more than the account has. It and the intent behind it say so.
func (w *walker) unpaid() {
	has, err := w.explorer.BalanceAt(w.ctx, common.Address(eip155.MustBytes(w.account.Address)), nil)
	check(w.t, err)
	dear := w.posts(stack.CallerAccount, "unpaid", object{"to": cafe0, "value": new(big.Int).Add(has, big.NewInt(params.Ether)).String()})
	behind := w.pays("behind")
	w.ends("the head", dear, `"state":"QUEUED"`, `"cause":"BALANCE"`, `"position":1`, `"lastError":"balance`)
	w.ends("behind it", behind, `"cause":"EARLIER_INTENT"`, `"position":2`, `"blockedBy":{"txId":"`+dear+`","cause":"BALANCE"`)
	w.why(dear, "BALANCE", "balance", "Send coin to the account")
	w.get("the queue", w.ofSub("/queue"), dear, behind, `"cause":"BALANCE"`)
	w.attends("BLOCKED", "balance", `"cause":"BALANCE"`, dear)
	w.cancels(dear)
	w.confirmed("behind the cancelled one", behind)
	w.calm()
}

// tooDear: the head's caller allows lower fees than blocks take.
func (w *walker) tooDear() {
	cheap := w.posts(stack.CallerAccount, "cheap", object{"to": cafe0, "value": "1", "maxFeePerGas": "1", "maxPriorityFeePerGas": "1"})
	w.ends("the head", cheap, `"state":"QUEUED"`, `"cause":"OWN_BOUNDS"`)
	w.why(cheap, "OWN_BOUNDS", "fee-ceiling", "a higher maxFeePerGas")
	w.get("all that wait for it", "/admin/v1/tx?cause=OWN_BOUNDS", cheap)
	w.attends("BLOCKED", "fee-ceiling", `"cause":"OWN_BOUNDS"`, cheap)
	w.cancels(cheap)
	w.calm()
}

// alwaysReverts is the code that creates a contract whose calls revert.
const alwaysReverts = "0x625f5ffd5f526003601df3"

// deferred: the head's call would revert, and is tried again once the open transactions are terminal.
func (w *walker) deferred() {
	created := w.posts(stack.CallerAccount, "deploy", object{"data": alwaysReverts})
	w.confirmed("the contract", created)
	nonce, _ := w.get("its nonce", "/api/v1/tx/"+created, `"nonce":`)["nonce"].(float64)
	contract := crypto.CreateAddress(common.Address(eip155.MustBytes(w.account.Address)), uint64(nonce)).String()
	w.stack.Chain.StopMining()
	open := w.pays("open")
	w.why(open, "INCLUSION", "receipt-backlog")
	reverts := w.posts(stack.CallerAccount, "reverts", object{"to": contract, "data": "0x01"})
	w.ends("the head", reverts, `"state":"QUEUED"`, `"cause":"DEFERRED"`)
	w.why(reverts, "DEFERRED", "waiting", "until they are terminal")
	w.attends("BLOCKED", "waiting", `"cause":"DEFERRED"`, reverts)
	w.stack.Chain.StartMining()
	w.confirmed("the open one", open)
	w.ends("tried again", reverts, `"state":"FAILED"`, `"subState":"REJECTED"`)
}

// stuck: no node takes a transaction. A person reads its past, the nodes' owner raises their limit, and the person decides.
func (w *walker) stuck() {
	w.stack.RPC.SetFaults(rpcproxy.Faults{Refuse: func(*types.Transaction) string { return "tx fee (1.50 ether) exceeds the configured cap (1.00 ether)" }})
	id := w.pays("stuck")
	w.ends("the caller's view", id, `"state":"STUCK"`, `"cause":"OPERATOR"`)
	w.why(id, "OPERATOR", "stuck", "decide")
	w.attends("STUCK", "stuck", id)
	w.get("all that is STUCK", "/admin/v1/tx?state=STUCK", id)
	w.get("the lane", w.ofSub("/lane"), id)
	w.get("its versions", "/admin/v1/tx/"+id+"/versions", `"kind":"ORIGINAL"`, `"txHash":"0x`, `"lastSentAt":`, `"answer":"over_node_cap"`)
	w.get("its history", "/admin/v1/tx/"+id+"/history", `"state":"SUBMITTED"`, `"reason":"over_node_cap`, `"fencingToken":`, `"answer":"over_node_cap"`)
	w.stack.RPC.SetFaults(rpcproxy.Faults{})
	w.does("decide", http.MethodPost, "/admin/v1/tx/"+id+"/decide", object{"action": "rebroadcast", "reason": "the limit was raised"}, http.StatusAccepted)
	w.confirmed("decided", id)
	w.get("its end", "/admin/v1/tx/"+id+"/history", `"state":"CONFIRMED"`, `"node":"127.0.0.1:`)
	w.get("its decisions", "/admin/v1/tx/"+id+"/decisions", `"action":"REBROADCAST"`, `"reason":"the limit was raised"`, stack.OperatorAccount)
}

// protect: another program uses the key. A person reads the evidence, tries the release, releases, and writes the foreign
// transaction off.
func (w *walker) protect() {
	nonce := w.useKey()
	waits := w.pays("waits")
	w.why(waits, "PROTECT", "protect", "release")
	w.attends("PROTECT", "protect", w.sub, `"incident":`)
	protect, _ := w.get("the evidence", w.ofSub(""), `"incident":`, `"evidence":{`)["protect"].(object)
	w.as(stack.CallerAccount, "a new intent", http.MethodPost, "/api/v1/tx", object{"submitter": w.sub, "requestId": "refused", "payload": object{"to": cafe0, "value": "1"}}, http.StatusConflict, "SUBMITTER_PROTECTED")
	check(w.t, w.stack.Chain.Mine(70)) // the foreign transaction is finalized
	lost := w.get("lost", w.ofSub("/lost"), fmt.Sprintf(`"nonce":%d`, nonce), fmt.Sprintf(`"finalCount":%d`, nonce+1), `"consumingTx"`)
	body := object{"incident": protect["incident"], "mode": "resync", "count": lost["finalCount"], "requests": object{fmt.Sprint(nonce): "none"}, "reason": "a program of ours had the key"}
	w.does("try the release", http.MethodPost, w.ofSub("/release?dryRun=true"), body, http.StatusOK, `"dryRun":true`)
	w.get("nothing was changed", w.ofSub(""), `"incident":`)
	w.does("release", http.MethodPost, w.ofSub("/release"), body, http.StatusOK, fmt.Sprintf(`"displaced":[%d]`, nonce))
	w.confirmed("the intent that waited", waits)
	w.get("the foreign transaction", w.ofSub("/foreign"), fmt.Sprintf(`"nonce":%d`, nonce))
	w.attends("FOREIGN", "held-intents", w.sub)
	w.does("write it off", http.MethodPost, w.ofSub("/foreign/write-off"), object{"nonce": nonce, "reason": "no request of ours"}, http.StatusOK)
	w.get("nothing is left", w.ofSub("/foreign"), `"foreign":[]`)
	w.confirmed("afterwards", w.pays("afterwards"))
	w.calm()
}

// readsViews reads the deployment as a whole: the overview, the chain's nodes, and the account on the chain.
func (w *walker) readsViews() {
	w.get("the overview", "/admin/v1/overview", `"attention":[]`, `"build":{"version":"`, `"minutes":60`)
	w.get("the chains", "/admin/v1/chains", fmt.Sprintf(`"chainId":%d`, w.stack.Chain.ChainID()), `"lag":0`)
	w.get("the account on the chain", w.ofSub(""), `"chain":{`, `"balance":"`, `"latest":`, `"finalized":`)
}

// notCounted are the metrics that the walk need not count, each with what would.
var notCounted = map[string]string{
	"fencepost_rpc_node_total": "several nodes", "fencepost_rpc_nodes_excluded": "several nodes", "fencepost_confirmations_new_fork_total": "a reorg",
	"fencepost_gas_bump_total": "a gas bump", "fencepost_gas_bump_extra_gwei_total": "a gas bump", "fencepost_mempool_diagnosis_total": "a lost transaction",
	"fencepost_tx_unproved_total": "a forged intent", "fencepost_refund_failures_total": "a refund that fails", "fencepost_lease_fenced_total": "a lost lease",
	"fencepost_conservation_check_total": "a check of conservation", "fencepost_database_mark_uncompared": "a mark outside the database",
	"fencepost_gauge_failures_total": "a gauge's query that fails",
}

// readsMetrics reads the metrics of all processes after all that has happened: each is there, and promlint finds nothing.
func (w *walker) readsMetrics() {
	page := must(os.ReadFile("../../docs/telemetry.md"))(w.t)
	var missing []string
	check(w.t, poll(w.ctx, func() bool { // a sweep shows its gauges
		all := strings.Join(pagesOf(w.t, w.stack), "\n")
		missing = nil
		for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(string(page), -1) {
			if name := "fencepost_" + m[1]; notCounted[name] == "" && !strings.Contains(all, "\n# TYPE "+name+" ") {
				missing = append(missing, name)
			}
		}
		return len(missing) == 0
	}), "metrics on no page:", &missing)
	for i, text := range pagesOf(w.t, w.stack) {
		for _, problem := range must(promlint.New(strings.NewReader(text)).Lint())(w.t) {
			w.t.Errorf("promlint, process %d: %s: %s", i, problem.Metric, problem.Text)
		}
		if len(valuesOn(text)) < 50 {
			w.t.Errorf("process %d: got %d series, want those of all that happened", i, len(valuesOn(text)))
		}
	}
}

// payOut begins without a payer, an asset and a user's account, and ends with a payment on the chain.
func (w *walker) payOut() {
	const user, address = 1, "0x00000000000000000000000000000000000ca5e1"
	key := must(crypto.GenerateKey())(w.t)
	payer := string(eip155.NewSubmitter(w.stack.Chain.ChainID(), eip155.Address(crypto.PubkeyToAddress(key.PublicKey))))
	w.does("register the payer", http.MethodPost, "/admin/v1/submitters", object{
		"submitter": payer, "signer": "kms:" + w.stack.KMS.Add("payer", key), "callers": []string{"transfer"}, "policy": object{"maxValuePerDay": "5000000000000000000"},
	}, http.StatusCreated, payer)
	w.confirmed("its coin", w.posts(stack.CallerAccount, "coin", object{"to": crypto.PubkeyToAddress(key.PublicKey).String(), "value": "2000000000000000000"}))
	w.does("the asset", http.MethodPut, "/admin/v1/assets/ETH", object{
		"assetId": 4, "precision": 8, "minTransfer": "0.0001", "maxTransfer": "1", "payout": object{"payer": payer, "decimals": 18}, "reason": "the listing",
	}, http.StatusOK, payer)
	deposit := object{"id": "wire-1", "amount": "1.5", "reason": "the statement of the bank"}
	for range 2 { // the repeat books nothing
		w.does("a deposit", http.MethodPost, "/admin/v1/accounts/1/ETH/deposits", deposit, http.StatusOK, "wire-1")
	}
	w.user("the balance", user, http.MethodGet, "/api/v1/accounts?asset=ETH", nil, `"1.5`)
	paid := w.user("the payout", user, http.MethodPost, "/api/v1/payout", object{"asset": "ETH", "amount": "0.5", "address": address, "cid": "first"}, `"req_id":"`)
	w.user("its end", user, http.MethodGet, fmt.Sprint("/api/v1/internal_transfer/", paid["req_id"]), nil, `"state":"COMMITTED"`)
	w.get("why, at its end", fmt.Sprintf("/admin/v1/transfers/%v/why", paid["req_id"]), "0.5", "CHAIN")
	if got, err := w.explorer.BalanceAt(w.ctx, common.HexToAddress(address), nil); err != nil || got.String() != "500000000000000000" {
		w.t.Errorf("on the chain: got %v wei, %v; want 0.5 ether", got, err)
	}
}

// user makes a call with the user's token until the answer is a success with all of the texts.
func (w *walker) user(what string, id int64, method, path string, body any, texts ...string) (got object) {
	w.t.Helper()
	return w.until(what, path, func() (int, []byte, error) { return w.stack.CallAsUser(w.ctx, id, method, path, body) }, texts...)
}

// receiverDown: a webhook receiver answers 503. A person sees it, tests it once it is back, and lets it have the past again.
func (w *walker) receiverDown() {
	before := w.receiver.accepted()
	w.receiver.answers(http.StatusServiceUnavailable)
	w.confirmed("while the receiver is down", w.pays("unheard"))
	w.get("the receivers", "/admin/v1/webhook-endpoints", `"name":"shop"`, `"status":503`, `"text":"out for lunch`, `"oldest":{"submitter":"eip155:`, `"fingerprints":["`)
	test := object{"reason": "is it back"}
	w.does("a test", http.MethodPost, "/admin/v1/webhook-endpoints/shop/test", test, http.StatusOK, `"accepted":false`, `"status":503`)
	w.does("pause", http.MethodPost, "/admin/v1/webhook-endpoints/shop/pause", object{"reason": "until it is back"}, http.StatusOK, `"paused":{`)
	w.get("it is paused", "/admin/v1/webhook-endpoints", `"reason":"until it is back"`, stack.OperatorAccount)
	w.receiver.answers(http.StatusNoContent)
	w.does("a test", http.MethodPost, "/admin/v1/webhook-endpoints/shop/test", test, http.StatusOK, `"accepted":true`, `"status":204`)
	w.does("resume", http.MethodPost, "/admin/v1/webhook-endpoints/shop/resume", test, http.StatusOK, `"paused":null`)
	w.get("nothing waits", "/admin/v1/webhook-endpoints", `"backlog":{"events":0`)
	w.does("all again", http.MethodPost, "/admin/v1/webhook-endpoints/shop/redeliver", object{"after": "0", "reason": "the shop has lost its database"}, http.StatusOK, `"submitters":`)
	check(w.t, poll(w.ctx, func() bool { return w.receiver.accepted() >= 2*before }), "the receiver got everything again")
}

// receiver is a webhook receiver that answers with a status.
type receiver struct {
	url    string
	status atomic.Int32
	taken  atomic.Int32
}

func startReceiver(t *testing.T) *receiver {
	t.Helper()
	r := new(receiver)
	r.answers(http.StatusNoContent)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status := int(r.status.Load())
		w.WriteHeader(status)
		if status == http.StatusNoContent {
			r.taken.Add(1)
		} else {
			fmt.Fprint(w, "out for lunch")
		}
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *receiver) answers(status int32) { r.status.Store(status) }

// accepted is how many deliveries were accepted.
func (r *receiver) accepted() int32 { return r.taken.Load() }

// useKey sends a transaction by the account's key from outside, waits until it is mined, and returns its nonce.
func (w *walker) useKey() (nonce uint64) {
	nonce, err := w.explorer.PendingNonceAt(w.ctx, common.Address(eip155.MustBytes(w.account.Address)))
	check(w.t, err)
	tx := w.stack.Sign(w.account, w.stack.Payment(nonce, unused, 7, 1))
	check(w.t, w.explorer.SendTransaction(w.ctx, tx))
	check(w.t, poll(w.ctx, func() bool {
		_, err := w.explorer.TransactionReceipt(w.ctx, tx.Hash())
		return err == nil
	}), "mine the foreign transaction")
	return nonce
}
