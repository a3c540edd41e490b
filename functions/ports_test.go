package functions_test

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// ported is a process with a business' code and a separate chain. The business' signer has the key of
// the submitter.
type ported struct {
	deployment
	*functions.App
	chain     *devchain.Chain
	submitter txmanager.Submitter
}

// withPorts starts the process, with two URLs of its chain's node. altered, if not nil, changes what the signer signs.
func withPorts(t *testing.T, ext functions.Extensions, altered func(*txmanager.Unsigned), settings ...string) ported {
	t.Helper()
	return withPortsFor(t, []string{"*"}, ext, altered, settings...)
}

// withPortsFor is [withPorts] with the callers of the submitter.
func withPortsFor(t *testing.T, callers []string, ext functions.Extensions, altered func(*txmanager.Unsigned), settings ...string) ported {
	t.Helper()
	d, chain := onChain(t)
	account := devchain.DevAccounts(1)[0]
	h := ported{deployment: d, chain: chain, submitter: eip155.NewSubmitter(chain.ChainID(), account.Address)}
	keys := check.Value(signer.NewLocal(map[txmanager.Submitter]*ecdsa.PrivateKey{h.submitter: account.Key}))(t)
	ext.Signers = []signer.Kind{{Name: "vault", Key: "<path>", Signer: func(string) (signer.Service, error) { return altering{keys, altered}, nil }}}
	h.App = h.openedWith(ext, append([]string{"FENCEPOST_NONCE_STRICT_ENABLED=false", "FENCEPOST_RPC_URLS=" + chain.URL() + "," + chain.URL() + "/again"}, settings...)...)
	h.url = h.listen(h.App, functions.All)
	check.OK(t)(h.Store.Register(t.Context(), store.Registration{Submitter: h.submitter, Signer: "vault:treasury", MaxInFlight: 1, Callers: callers, CreatedBy: "test"}))
	return h
}

// post posts an intent of the shop's and serves the submitter once.
func (h ported) post(requestID string) {
	h.t.Helper()
	a := h.as("shop", "POST", "/api/v1/tx", map[string]any{"submitter": h.submitter, "requestId": requestID, "payload": map[string]any{"to": paidTo, "value": "1"}})
	a.wants(h.t, 202, "post")
	h.advance()
}

// create stores an intent of the caller.
func (h ported) create(caller string) {
	h.t.Helper()
	payload, fingerprint, err := evm.Family{}.ParsePayload([]byte(`{"to": "` + paidTo + `", "value": "1"}`))
	check.OK(h.t)(err)
	in := store.Intent{TxID: uuid.NewString(), Submitter: h.submitter, RequestID: "r", Caller: caller, Payload: payload, Fingerprint: fingerprint}
	check.OK(h.t)(h.App.Create(h.t.Context(), in))
}

func (h ported) advance() {
	h.t.Helper()
	check.OK(h.t)(h.App.Serve(h.t.Context(), h.submitter, txmanager.KindAdvance))
}

// altering is a signer that signs something else than it is asked.
type altering struct {
	*signer.Local
	altered func(*txmanager.Unsigned)
}

func (a altering) Sign(ctx context.Context, s txmanager.Submitter, tx txmanager.Unsigned) (txmanager.Signed, error) {
	if a.altered != nil {
		a.altered(&tx)
	}
	return a.Local.Sign(ctx, s, tx)
}

// A business' signer signs a transaction. Bytes of another transaction are not stored and not sent.
func TestExtensionsSign(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		altered func(*txmanager.Unsigned)
		want    string // the states and the number of versions
	}{
		"as it is asked":  {nil, "SUBMITTED 1"},
		"a higher fee":    {func(tx *txmanager.Unsigned) { tx.FeeCapWei = new(big.Int).Lsh(tx.FeeCapWei, 1) }, "QUEUED 0"},
		"another payment": {func(tx *txmanager.Unsigned) { tx.Value = big.NewInt(2) }, "QUEUED 0"},
		"a panic":         {func(*txmanager.Unsigned) { panic("no session") }, "QUEUED 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := withPorts(t, functions.Extensions{}, c.altered)
			h.post("r")
			check.Equal(t, "states and versions", h.one(`select string_agg(state, ' ') from managed_tx`)+" "+h.one(`select count(*) from tx_version`), c.want)
			check.Equal(t, "a line of the log, for an answer that is not used", h.log.find("message", "not signed") != nil, c.altered != nil)
		})
	}
}

// gives is a business' code that makes one decision about every STUCK transaction.
type gives txmanager.Action

func (g gives) Resolve(txmanager.Tx) (txmanager.Action, string) {
	return txmanager.Action(g), "by the business' rule"
}

// A business' code gives up a stuck transaction. It cannot give up a payout: the refusal is logged, and
// nothing changes.
func TestExtensionsResolveButNotAPayout(t *testing.T) {
	t.Parallel()
	for caller, want := range map[string]string{"shop": "PLACEHOLDER by StuckResolution", txmanager.PayoutCaller: "null"} {
		t.Run(caller, func(t *testing.T) {
			t.Parallel()
			h := withPortsFor(t, []string{caller}, functions.Extensions{Stuck: gives(txmanager.ActionPlaceholder)}, nil)
			h.create(caller)
			h.advance()
			h.run(`update managed_tx set state = 'STUCK', sub_state = null, next_check_at = clock_timestamp()`)
			h.advance()
			check.Equal(t, "decisions", h.one(`select string_agg(action || ' by ' || by, ', ') from tx_decision`), want)
			isPayout := caller == txmanager.PayoutCaller
			check.Equal(t, "placeholders", h.one(`select count(*) from tx_version where kind = 'PLACEHOLDER'`), map[bool]string{false: "1", true: "0"}[isPayout])
			refused := h.log.find("message", "a decision by code about a STUCK transaction is not followed")
			if (refused != nil) != isPayout || refused != nil && !strings.Contains(fmt.Sprint(refused["problem"]), "payout") {
				t.Errorf("log: got %v, want a line with the reason for a payout alone", refused)
			}
		})
	}
}

// ledger is a business' publisher, which fails once.
type ledger struct {
	failed bool
	events []string
}

func (l *ledger) Publish(_ context.Context, all []txmanager.Event) (int, error) {
	for i, e := range all {
		if i == 1 && !l.failed {
			l.failed = true
			return i, errors.New("no room")
		}
		l.events = append(l.events, fmt.Sprint(e.Sequence, e.Type))
	}
	return len(all), nil
}

// A business' publisher gets every event in order, also after a failure, from its own delivery queue.
func TestExtensionsPublish(t *testing.T) {
	t.Parallel()
	books := new(ledger)
	ext := functions.Extensions{Publishers: map[string]txmanager.DomainEventPublisher{"audit": books}}
	h := withPorts(t, ext, nil, deliverySettings...)
	h.post("r")
	for range 2 {
		h.as("tasks", "POST", "/internal/publish", map[string]any{"submitter": h.submitter, "endpoint": "audit"}).wants(t, 204, "publish")
		h.run(`update event_delivery_queue set next_attempt_at = clock_timestamp() - interval '1 s' where endpoint = 'audit'`)
	}
	check.Equal(t, "events, each once and in order", strings.Join(books.events, " "), "1TxAccepted 2TxSubmitted")
	for settings, want := range map[string]string{"FENCEPOST_EVENTS_MODE=poll": "keeps no events", "FENCEPOST_EVENTS_WEBHOOK_URLS=audit=http://127.0.0.1:1/": "another name"} {
		more := append([]string{}, deliverySettings...)
		if more = append(more, settings); strings.Contains(settings, "audit") {
			more = append(more, "FENCEPOST_EVENTS_WEBHOOK_SECRETS=audit="+hookSecret)
		}
		says(t, settings, h.startError(ext, more...), want)
	}
}

// Publishers alone are endpoints enough for events.mode=webhook. A process without any does not start,
// nor one with a publisher that has no code.
func TestEventsNeedAnEndpoint(t *testing.T) {
	t.Parallel()
	h := build(t)
	for want, publishers := range map[string]map[string]txmanager.DomainEventPublisher{
		"": {"audit": new(ledger)}, "set FENCEPOST_EVENTS_WEBHOOK_URLS": {}, "publisher audit is nil": {"audit": nil},
	} {
		got := h.startError(functions.Extensions{Publishers: publishers}, "FENCEPOST_EVENTS_MODE=webhook")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%v: got %q, want %q", publishers, got, want)
		}
	}
}

// loses is a business' inspector: every transaction is perhaps lost, or the answer is unknown.
type loses bool

func (l loses) Diagnose(rules.MempoolEvidence) (txmanager.Signal, txmanager.Advice, bool) {
	if l {
		return txmanager.PerhapsLost, txmanager.AdviseWait, true
	}
	return "IN_PRIVATE_POOL", txmanager.AdviseWait, true
}

// A business' inspector gives the diagnosis that operators read. An unknown signal is logged and not
// stored. Neither changes the transaction.
func TestExtensionsInspectTheMempool(t *testing.T) {
	t.Parallel()
	for known, want := range map[loses]string{true: "PERHAPS_LOST WAIT", false: "null"} {
		h := withPorts(t, functions.Extensions{Mempool: known}, nil, "FENCEPOST_MEMPOOL_DIAGNOSE_ENABLED=true")
		h.post("r")
		h.run(`update managed_tx set next_check_at = clock_timestamp()`)
		h.advance()
		check.Equal(t, "diagnosis", h.one(`select string_agg(last_mempool_diag ->> 'signal' || ' ' || (last_mempool_diag ->> 'advice'), ',') from managed_tx`), want)
		check.Equal(t, "transaction, with no requested action", h.one(`select state || ' ' || sub_state || ' ' || coalesce(requested_action, '') from managed_tx`),
			"TRACKING PENDING ")
		check.Equal(t, "a line of the log, for an unknown signal alone", h.log.find("message", "a mempool diagnosis is not used") == nil, bool(known))
	}
}

// bids is a business' gas bump policy that proposes one fee in both fields.
type bids int64

func (b bids) Propose(r gas.BumpRequest) (gas.ProposedFees, bool) {
	if b == 0 {
		panic("no market")
	}
	return gas.ProposedFees{FeeWei: big.NewInt(int64(b)), TipWei: big.NewInt(1e9)}, true
}

// A business' policy makes the gas bumps, within the settings' caps. A fee that is too low is refused
// with a reason.
func TestExtensionsBidWithinTheCaps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bid            bids
		versions, last string
		lastError      string
	}{
		"within the caps": {7e9, "ORIGINAL BUMP", "7000000000", ""},
		"above the caps":  {70e9, "ORIGINAL BUMP", "20000000000", ""},
		"too low":         {1e9, "ORIGINAL", "", "gas bump: its policy proposed"},
		"a panic":         {0, "ORIGINAL", "", "gas bump: its policy failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := withPorts(t, functions.Extensions{Bump: c.bid}, nil, "FENCEPOST_GASBUMP_ENABLED=true", "FENCEPOST_GASBUMP_MIN_INTERVAL=1s",
				"FENCEPOST_GASBUMP_MAX_FEE_PER_GAS=20000000000")
			h.post("r")
			await(t, "the bump is due by the database's clock", func() bool {
				return h.one(`select (first_submit_at + interval '1 second' < clock_timestamp())::text from managed_tx`) == "true"
			})
			h.advance()
			check.Equal(t, "versions", h.one(`select string_agg(kind, ' ' order by version) from tx_version`), c.versions)
			if got := h.one(`select last_gas_params ->> 'maxFeePerGas' from managed_tx`); c.last != "" && got != c.last {
				t.Errorf("fee: got %s, want %s", got, c.last)
			}
			if got := h.one(`select coalesce(last_error, '') from managed_tx`); !strings.HasPrefix(got, c.lastError) || c.lastError == "" && got != "" {
				t.Errorf("last error: got %q, want %q", got, c.lastError)
			}
		})
	}
}

// lost is a business' connector, whose node is of another chain at each query.
type lost struct {
	chain.Node
	asked *atomic.Int64
}

func (l lost) Query(context.Context, txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	l.asked.Add(1)
	return txmanager.ChainObservation{}, chain.ErrWrongChain
}

// A business' connector is one of the chain's nodes: one that fails is excluded, and the other answers.
func TestExtensionsConnect(t *testing.T) {
	t.Parallel()
	asked, opened := new(atomic.Int64), ""
	ext := functions.Extensions{Connect: func(o evm.Options) (chain.Node, error) {
		if opened += o.Node + " "; strings.HasSuffix(o.Node, "#2") {
			return nil, nil // the default
		}
		one, err := evm.New(o)
		return lost{one, asked}, err
	}}
	h := withPorts(t, ext, nil)
	h.post("r")
	host := strings.TrimPrefix(h.chain.URL(), "http://")
	check.Equal(t, "opened", opened, host+" "+host+"#2 ")
	if got := h.one(`select string_agg(state, ' ') from managed_tx`); got != "SUBMITTED" || asked.Load() == 0 {
		t.Errorf("got %s after %d queries of the first node, want SUBMITTED by the other", got, asked.Load())
	}
	if line := h.log.find("message", "node excluded"); line == nil || line["node"] != host {
		t.Errorf("log: got %v, want that the node is excluded", line)
	}
}

// shouting is a connector that returns an address in upper case.
type shouting struct{ chain.Node }

func (s shouting) ParsePayload(payload []byte) (txmanager.Call, error) {
	call, err := s.Node.ParsePayload(payload)
	call.To = new(txmanager.Address("0x" + strings.ToUpper(call.To.String()[2:])))
	return call, err
}

// An address that a business' connector returns in another form than the canonical one is refused.
func TestConnectReturnsCanonicalAddresses(t *testing.T) {
	t.Parallel()
	ext := functions.Extensions{Connect: func(o evm.Options) (chain.Node, error) {
		one, err := evm.New(o)
		return shouting{one}, err
	}}
	h := withPorts(t, ext, nil)
	h.post("r")
	got := h.one(`select concat(state, ': ', last_error) from managed_tx`)
	if want := ": ParsePayload returned the address"; !strings.Contains(got, want) || strings.HasPrefix(got, "SUBMITTED") {
		t.Errorf("got %s, want a refusal with %q", got, want)
	}
}

// Code that cannot connect ends the start with an error.
func TestConnectThatFailsEndsTheStart(t *testing.T) {
	t.Parallel()
	h := build(t)
	for want, connect := range map[string]func(evm.Options) (chain.Node, error){
		"returned a nil *evm.Connector": func(evm.Options) (chain.Node, error) { return (*evm.Connector)(nil), nil },
		"panicked: no route":            func(evm.Options) (chain.Node, error) { panic("no route") },
		"chain 1337: no key":            func(evm.Options) (chain.Node, error) { return nil, errors.New("no key") },
	} {
		says(t, "code that cannot connect", h.startError(functions.Extensions{Connect: connect}), want)
	}
}
