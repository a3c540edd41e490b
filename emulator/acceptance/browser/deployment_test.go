package browser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/local"
	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/client"
)

// planted is markup that runs a script where it is not escaped. The texts of the shared deployment end in it.
const planted = `'"><img src=x onerror=hacked=1>`

// texts are what people and programs outside choose.
type texts struct{ request, byHandler, stuck, name, handler, node, reason, receiver, key string }

func textsEnding(end string) texts {
	return texts{"order-4711" + end, "order-4712" + end, "order-4713" + end, "refunds" + end, "sold out" + end, "ask the operator" + end, "weekly check" + end, "closed on Sundays" + end, "rent" + end}
}

// chosen are the texts of the shared deployment.
var chosen = textsEnding(planted)

// quick makes the sweep find lost work within seconds, and a payment final within a second.
var quick = acceptancetest.Settings(acceptancetest.Quick, acceptancetest.QuickTransfers, map[string]string{
	"FENCEPOST_CONFIRMATIONS_REQUIRED": "3", "FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT": "1s", "FENCEPOST_TELEMETRY_BALANCES": "5",
	"FENCEPOST_HANDLERS_TIMEOUT": "900ms", "FENCEPOST_EVENTS_MODE": "webhook", "FENCEPOST_EVENTS_WEBHOOK_TIMEOUT": "900ms", "FENCEPOST_APPROVALS_REQUIRED": "webhooks",
})

// shopSecret signs the calls of the shop's handler and receiver.
const shopSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// deployment is the whole system with a browser.
type deployment struct {
	*acceptancetest.Deployment
	control  *local.Control
	shop     *httptest.Server
	operator *client.Client
	caller   *client.Client

	chromium context.Context
	ends     stack.Closers

	says    texts
	console string       // the URL of the console, without a path
	calls   atomic.Int64 // of the API of operators

	changing sync.Mutex // held by the one test that changes the submitter of changed

	people sync.Mutex
	signed map[string]context.Context // by account: the browser's profile of a person who is signed in

	// Of the seed.
	paid     string // the hash of a payout's transaction
	transfer string // the payout's req_id
	orders   string // the txId of the confirmed transaction with the planted requestId
	refused  string // of the one that its handler refused
	stuck    string // of the one that the nodes refused
}

// started tells whether a test has asked for the deployment.
var started atomic.Bool

// shared is the deployment of all tests.
var shared = sync.OnceValues(func() (*deployment, error) {
	started.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), acceptancetest.Within)
	defer cancel()
	h, err := startDeployment(ctx, chosen, 200*time.Millisecond)
	if err != nil {
		return nil, err
	}
	if err := h.seed(ctx, h.seedNames, h.seedTransactions, h.seedStuck, h.seedMoney, h.seedReceiver); err != nil {
		return nil, errors.Join(err, h.ends.Close())
	}
	return h, nil
})

// setup returns the deployment.
func setup(t *testing.T) *deployment {
	t.Helper()
	needBrowser(t)
	return must(shared())(t)
}

// startDeployment starts the system, in which others say these texts and a block comes each blockTime, and the browser.
func startDeployment(ctx context.Context, says texts, blockTime time.Duration) (h *deployment, err error) {
	h = &deployment{says: says, signed: map[string]context.Context{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.ends.Close())
		}
	}()
	defer steps.Return(&err)
	h.shop = httptest.NewServer(shop(says))
	h.onClose(func() error { h.shop.Close(); return nil })
	settings := acceptancetest.Settings(quick, map[string]string{
		"FENCEPOST_EVENTS_WEBHOOK_URLS": "shop=" + h.shop.URL + "/events,books=" + h.shop.URL + "/books", "FENCEPOST_EVENTS_WEBHOOK_SECRETS": "shop=" + shopSecret + ",books=" + shopSecret,
		"FENCEPOST_HANDLERS_URLS": "shop=" + h.shop.URL + "/handler", "FENCEPOST_HANDLERS_SECRETS": "shop=" + shopSecret,
	})
	h.Deployment = steps.Value(acceptancetest.Start(ctx, stack.Options{
		Payouts: true, Submitters: 5, Processes: 2, Window: 4, Nodes: 3,
		BlockTime: blockTime, SweepEvery: time.Second, CheckEvery: -1, Settings: settings, Around: h.count, Console: true,
	}))
	h.onClose(h.Deployment.Close)
	h.console = h.URLMap.PublicURL()
	h.control = steps.Value(local.Serve(h.Stack, "127.0.0.1:0", false))
	h.onClose(h.control.Close)
	h.operator = steps.Value(h.Client(stack.OperatorAccount))
	h.caller = steps.Value(h.Client(stack.CallerAccount))
	folder := steps.Value(os.MkdirTemp("", "fencepost-browser-"))
	h.onClose(func() error { return os.RemoveAll(folder) })
	chromium, end, err := startChromium(folder)
	steps.OK(err)
	h.chromium = chromium
	h.onClose(func() error { end(); return nil })
	return h, nil
}

func (h *deployment) onClose(f func() error) { h.ends = append(h.ends, f) }

// shop is a business: its handler refuses each request, and its receiver is closed. Both say why. Its bookkeeping takes
// each event.
func shop(says texts) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /handler", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprintf(w, `{"detail": %s}`, quote(says.handler))
	})
	mux.HandleFunc("POST /events", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, says.receiver)
	})
	mux.HandleFunc("POST /books", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	return mux
}

// Where each test works: it disturbs no other's submitter.
func (h *deployment) hostile() string  { return string(h.Submitters()[0]) }     // has the planted texts
func (h *deployment) ordinary() string { return string(h.Submitters()[1]) }     // has nothing special
func (h *deployment) changed() string  { return string(h.Submitters()[2]) }     // is changed by acts
func (h *deployment) crowded() string  { return string(h.Submitters()[crowd]) } // gets a long queue, and is in PROTECT then
func (h *deployment) drilled() string  { return string(h.Submitters()[4]) }     // the drills': the last one

// crowd is the index of the account of crowded.
const crowd = 3

// receiver is an unused address.
const receiver = "0x00000000000000000000000000000000000cafe0"

// post posts a payment of one wei.
func (h *deployment) post(ctx context.Context, submitter, requestID string) (txID string, err error) {
	created, err := h.caller.CreateTx(ctx, client.Intent{Submitter: submitter, RequestID: requestID, Payload: client.Payload{To: receiver, Value: "1"}})
	return created.TxID, err
}

// reaches waits until the transaction is in the state.
func (h *deployment) reaches(ctx context.Context, txID string, want client.TxState) error {
	var last client.Tx
	err := acceptancetest.Wait(ctx, func() (met bool) {
		var err error
		last, err = h.operator.Tx(ctx, txID)
		return err == nil && last.State == want
	})
	if err != nil {
		return fmt.Errorf("transaction %s: got %s, want %s: %w", txID, last.State, want, err)
	}
	return nil
}

// count counts the calls of the API of operators.
func (h *deployment) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/admin/") {
			h.calls.Add(1)
		}
		next.ServeHTTP(w, r)
	})
}

// seed makes parts of the texts, of a payout, and of some ordinary transactions.
func (h *deployment) seed(ctx context.Context, parts ...func(context.Context)) error {
	return steps.Run(func() {
		for _, part := range parts {
			part(ctx)
		}
	})
}

func (h *deployment) seedNames(ctx context.Context) {
	s := h.hostile()
	name := h.says.name
	steps.Value(h.operator.UpdateSubmitter(ctx, s, client.SubmitterUpdate{Name: &name}, h.says.reason))
	steps.Value(h.operator.SuspendSubmitter(ctx, s, h.says.reason))
	steps.Value(h.operator.ResumeSubmitter(ctx, s, h.says.reason))
	steps.Value(h.operator.SetCallers(ctx, s, []string{"email:" + stack.CallerAccount, "handler:shop"}, nil, h.says.reason))
}

func (h *deployment) seedTransactions(ctx context.Context) {
	h.orders = steps.Value(h.post(ctx, h.hostile(), h.says.request))
	refused := client.Intent{Submitter: h.hostile(), RequestID: h.says.byHandler, Handler: "shop", Payload: map[string]string{"note": h.says.byHandler}}
	h.refused = steps.Value(h.caller.CreateTx(ctx, refused)).TxID
	for i := range 3 {
		id := steps.Value(h.post(ctx, h.ordinary(), fmt.Sprintf("order-%d", i)))
		steps.OK(h.reaches(ctx, id, client.Confirmed))
	}
	steps.OK(h.reaches(ctx, h.orders, client.Confirmed))
	steps.OK(h.reaches(ctx, h.refused, client.Failed))
}

// seedStuck leaves a transaction STUCK: no node took it, and each said why.
func (h *deployment) seedStuck(ctx context.Context) {
	refuse := func(*types.Transaction) string {
		return "tx fee (1.50 ether) exceeds the configured cap (1.00 ether): " + h.says.node
	}
	h.faults(rpcproxy.Faults{Refuse: refuse})
	defer h.faults(rpcproxy.Faults{})
	h.stuck = steps.Value(h.post(ctx, h.hostile(), h.says.stuck))
	steps.OK(h.reaches(ctx, h.stuck, client.Stuck))
}

func (h *deployment) faults(f rpcproxy.Faults) {
	for _, node := range h.Nodes {
		node.SetFaults(f)
	}
}

// user has money on both sides.
const user = 1

// seedMoney pays out to the chain.
func (h *deployment) seedMoney(ctx context.Context) {
	steps.OK(h.Book(ctx, user, stack.ETH.Name, client.Money{ID: "opening", Amount: "10", Reason: h.says.reason}))
	users := steps.Value(h.UserClient(user))
	payout := client.PayoutRequest{Asset: stack.ETH.Name, Amount: "0.5", Address: receiver, CID: h.says.key}
	h.transfer = steps.Value(users.CreatePayout(ctx, payout)).ReqID
	if last := steps.Value(users.WaitTransfer(ctx, h.transfer)); last.State != client.TransferCommitted {
		steps.Stopf("the payout: got %s, want COMMITTED", last.State)
	}
	for found, err := range h.operator.FindTxs(ctx, client.TxFilter{Submitter: string(h.Payer)}) {
		steps.OK(err)
		h.paid = found.TxHash
	}
	if h.paid == "" {
		steps.Stopf("the payout's transaction: got none with a hash")
	}
	steps.OK(h.RunConservation(ctx))
}

// seedReceiver tests and pauses the receiver, which is closed.
func (h *deployment) seedReceiver(ctx context.Context) {
	steps.Value(h.operator.TestWebhookEndpoint(ctx, "shop", h.says.reason))
	steps.Value(h.operator.PauseWebhookEndpoint(ctx, "shop", h.says.reason))
}

// incident checks that the submitter is in PROTECT.
func (h *deployment) incident(t *testing.T, submitter string) {
	t.Helper()
	if shown := must(h.operator.Submitter(t.Context(), submitter))(t); shown.Protect == nil {
		t.Fatalf("%s: got no incident, want one", submitter)
	}
}
