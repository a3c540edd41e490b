package acceptance

import (
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/emulator/acceptance/payroll"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/webhook"
)

// shopSecret is the secret with which calls to the shop are signed.
var shopSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret of 32 bytes, for tests."))

// shop is a business service over HTTP. It answers according to the payload's "how".
type shop struct {
	t      *testing.T
	server *httptest.Server
	keys   map[txmanager.Submitter]*ecdsa.PrivateKey // keys of accounts for which it signs itself

	open chan struct{} // closed: waiting calls are answered

	mu    sync.Mutex
	asked map[string][]string // id and body of each call, by requestId
	later map[string]int      // how often it answers "not now", by requestId
}

type order struct {
	Submitter txmanager.Submitter
	Nonce     uint64
	ChainID   uint64
	RequestID string
	Payload   struct{ How string }
}

func openShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, open: make(chan struct{}), keys: map[txmanager.Submitter]*ecdsa.PrivateKey{}, asked: map[string][]string{}, later: map[string]int{}}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	return s
}

func (s *shop) settings() map[string]string {
	return map[string]string{"FENCEPOST_HANDLERS_URLS": "shop=" + s.server.URL + "/orders", "FENCEPOST_HANDLERS_SECRETS": "shop=" + shopSecret}
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	key, _ := webhook.ParseKey(shopSecret)
	id, unproven := webhook.Verify(r.Header, time.Now(), body, key)
	var o order
	if err != nil || unproven != nil || json.Unmarshal(body, &o) != nil || r.Method != http.MethodPost || r.URL.Path != "/orders" {
		s.t.Errorf("asked %s %s: %s, %v, %v; want a signed question", r.Method, r.URL.Path, body, err, unproven)
		return
	}
	s.mu.Lock()
	s.asked[o.RequestID] = append(s.asked[o.RequestID], id+" "+string(body))
	s.later[o.RequestID]--
	later := s.later[o.RequestID] >= 0
	s.mu.Unlock()
	if later {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	s.answer(w, r, o)
}

const shopAnswer = `{"transaction": {"to": "0x000000000000000000000000000000000000cafe", "value": "5"}}`

func (s *shop) answer(w http.ResponseWriter, r *http.Request, o order) {
	bytes := func(key *ecdsa.PrivateKey, n, chain uint64) {
		raw, err := inAnyForm(key, chain, n, common.Address{18: 0xca, 19: 0xfe}, 5)
		if err != nil {
			s.t.Error(err)
		}
		fmt.Fprintf(w, `{"signedTransaction": "0x%x"}`, raw)
	}
	switch o.Payload.How {
	case "signs":
		bytes(s.keys[o.Submitter], o.Nonce, o.ChainID)
	case "signs for another nonce":
		bytes(s.keys[o.Submitter], o.Nonce+1, o.ChainID)
	case "signs for another chain":
		bytes(s.keys[o.Submitter], o.Nonce, o.ChainID+1)
	case "signs as another":
		bytes(s.anybody(), o.Nonce, o.ChainID)
	case "refuses":
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"detail": "the order was returned"}`)
	case "talks nonsense":
		fmt.Fprint(w, `<html>`)
	case "redirects":
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	case "hangs":
		<-r.Context().Done()
	case "waits":
		<-s.open
		fmt.Fprint(w, shopAnswer)
	case "takes a second":
		<-time.After(time.Second)
		fmt.Fprint(w, shopAnswer)
	default:
		fmt.Fprint(w, shopAnswer)
	}
}

func (s *shop) anybody() *ecdsa.PrivateKey {
	key, err := crypto.GenerateKey()
	if err != nil {
		s.t.Error(err)
	}
	return key
}

func (s *shop) questions(request string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked[request])
}

// setupShop starts a stack that is configured with the shop, and gives the shop the accounts' keys.
func setupShop(t *testing.T, s *shop, o stack.Options) bench {
	t.Helper()
	o.Settings = withSettings(quick, s.settings(), o.Settings)
	b := setup(t, o)
	b.knowsShop(t, s)
	return b
}

func (b bench) knowsShop(t *testing.T, s *shop) {
	t.Helper()
	info := must(b.Info(b.ctx))(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range info.Submitters {
		s.keys[txmanager.Submitter(a.Submitter)] = must(crypto.HexToECDSA(strings.TrimPrefix(a.PrivateKey, "0x")))(t)
	}
	must(b.DB.Exec(b.ctx, `update submitter set callers = callers || '{handler:shop}' where not 'handler:shop' = any (callers)`))(t)
}

// ordered returns an intent whose transaction the shop makes.
func ordered(s txmanager.Submitter, request, how string) map[string]any {
	return map[string]any{"submitter": s, "requestId": request, "handler": "shop", "payload": map[string]any{"how": how}}
}

// A business service over HTTP makes or signs the transactions of its requests. Each of its failures
// costs a placeholder, leaves no gap, and is reported. Earlier and later intents are carried out.
func TestFacadeOverHTTP(t *testing.T) {
	t.Parallel()
	windows(t, []int{1, 4}, func(t *testing.T, window int) {
		service := openShop(t)
		b := setupShop(t, service, stack.Options{Window: window})
		s := b.Submitters()[0]
		ends := map[string]string{ // the reason; "": carried out
			"": "", "signs": "",
			"refuses":                 "handler shop: its service answered 422: the order was returned",
			"talks nonsense":          "nothing else",
			"redirects":               "its service answered 307",
			"hangs":                   "no answer in time",
			"signs for another nonce": "its bytes have another nonce",
			"signs for another chain": "its bytes are for chain",
			"signs as another":        "its bytes are signed by",
		}
		ids := map[string]string{}
		for how := range ends {
			ids[how] = b.postUntilAnswered(t, ordered(s, "r-"+how, how))
		}
		b.postUntilAnswered(t, transfer(s, "behind them"))
		b.ends(t, map[txmanager.Submitter]int{s: len(ends) + 1})
		for how, want := range ends {
			if want == "" {
				b.wantState(t, how, ids[how], "CONFIRMED")
			} else {
				b.wantPlaceholder(t, how, ids[how], want)
			}
			question := service.questions("r-" + how)
			if len(question) == 0 || !strings.HasPrefix(question[0], ids[how]+" ") {
				t.Errorf("%q: got asked %q, want the txId %s as its key", how, question, ids[how])
			}
		}
		if got := b.sent(t, ids["signs"]); *got.To() != (common.Address{18: 0xca, 19: 0xfe}) || got.Value().Int64() != 5 || got.Gas() != 21_000 {
			t.Errorf("what the shop signed: got %s sent with %d wei, want its own bytes", got.To(), got.Value())
		}
	})
}

// sent returns the version of a transaction that was mined.
func (b bench) sent(t *testing.T, txID string) *types.Transaction {
	t.Helper()
	tx := new(types.Transaction)
	check(t, tx.UnmarshalBinary(b.raw(t, txID, "ORIGINAL")))
	return tx
}

// A service that answers "not now" gets the same call again under the same key, for at most
// handlers.patience.
func TestAServiceIsAskedTheSameAgain(t *testing.T) {
	t.Parallel()
	service := openShop(t)
	service.later["r-soon"], service.later["r-never"] = 2, 1<<30
	b := setupShop(t, service, stack.Options{Settings: map[string]string{"FENCEPOST_HANDLERS_PATIENCE": "10s"}})
	s := b.Submitters()[0]
	soon := b.postUntilAnswered(t, ordered(s, "r-soon", ""))
	never := b.postUntilAnswered(t, ordered(s, "r-never", ""))
	b.ends(t, map[txmanager.Submitter]int{s: 2})
	b.wantState(t, "soon", soon, "CONFIRMED")
	b.wantPlaceholder(t, "never", never, "answered 503")
	for request, id := range map[string]string{"r-soon": soon, "r-never": never} {
		all := service.questions(request)
		one := fmt.Sprintf(`%s {"submitter":"%s","nonce":%s,"chainId":1337,"requestId":"%s","payload":{"how":""}}`,
			id, s, map[string]string{"r-soon": "0", "r-never": "1"}[request], request)
		same(t, request+", questions", all, slices.Repeat([]string{one}, max(3, len(all))))
	}
}

// A service has handlers.timeout for its answer, even if the time-outs of nodes are shorter.
func TestAServiceHasItsOwnTimeOut(t *testing.T) {
	t.Parallel()
	service := openShop(t)
	b := setup(t, stack.Options{Settings: withSettings(service.settings(), map[string]string{"FENCEPOST_RPC_TIMEOUT": "700ms"})})
	b.knowsShop(t, service)
	s := b.Submitters()[0]
	id := b.postUntilAnswered(t, ordered(s, "r", "takes a second"))
	b.ends(t, map[txmanager.Submitter]int{s: 1})
	b.wantState(t, "the intent", id, "CONFIRMED")
}

// A process dies after it called a service, when it has the answer, and before and after it stores the
// bytes. Either its own signer or the service signed them. Another process calls again, or sends the
// stored bytes. The transaction counts once against the submitter's policy, which has no room for two.
func TestFacadeSurvivesDeaths(t *testing.T) {
	t.Parallel()
	points := []string{"advance.handler_asked", "advance.handler_answered", "advance.version_signed", "advance.version_stored", "advance.sent"}
	for _, how := range []string{"", "signs", "refuses"} {
		parallel(t, fmt.Sprintf("%q", how), func(t *testing.T) {
			service := openShop(t)
			killedInTurn(t, stack.Options{Settings: service.settings()}, points, func(t *testing.T, b bench, folder, point string) {
				b.knowsShop(t, service)
				s := b.Submitters()[0]
				_, operator := b.clients(t)
				must(operator.SetPolicy(b.ctx, string(s), client.Policy{MaxValuePerDay: "6"}, "5 of the shop and 1 behind it"))(t)
				id := b.postUntilAnswered(t, ordered(s, point, how))
				b.killed(t, folder, point)
				b.postUntilAnswered(t, transfer(s, "behind it"))
				b.ends(t, map[txmanager.Submitter]int{s: 2})
				want := "CONFIRMED"
				if how == "refuses" {
					want = "FAILED"
				}
				b.wantState(t, "the intent", id, want)
				all := service.questions(point)
				if again := len(slices.Compact(slices.Clone(all))); again != 1 {
					t.Errorf("questions: got %q, want one and the same", all)
				}
			})
		})
	}
}

// wage posts a wage for a handler that signs at once, and returns where its slip will be.
func (b bench) wage(t *testing.T, s txmanager.Submitter, request, how string) (txID, slip string) {
	t.Helper()
	slip = filepath.Join(t.TempDir(), "slip")
	intent := map[string]any{"submitter": s, "requestId": request, "handler": "wage", "payload": payroll.Wage{Wei: 5, How: how, Slip: slip}}
	return b.postUntilAnswered(t, intent), slip
}

// slip waits for the bytes that a handler was given.
func (b bench) slip(t *testing.T, path string) []byte {
	t.Helper()
	var raw []byte
	b.until(t, "no slip", func() bool {
		raw, _ = os.ReadFile(path)
		return len(raw) > 0
	})
	return raw
}

// storedAs returns the kind of the stored version with these bytes.
func (b bench) storedAs(t *testing.T, raw []byte) string {
	t.Helper()
	return value[string](t, b, `select kind from tx_version where tx_hash = $1`, "0x"+hex.EncodeToString(crypto.Keccak256(raw)))
}

// H32: bytes that a handler has signed are stored once, before the handler gets them, whatever the
// handler does next. The mined version decides.
func TestH32HandlerSigns(t *testing.T) {
	t.Parallel()
	b := setup(t, withPayroll(t, stack.Options{Settings: quick}))
	b.payer(t)
	s := b.Submitters()[0]
	ends := map[string]string{"signs": "CONFIRMED", "signs twice": "CONFIRMED", "signs and fails": "FAILED"}
	ids := map[string]string{}
	for how := range ends {
		var slip string
		ids[how], slip = b.wage(t, s, "r-"+how, how)
		equal(t, how+", its bytes", b.storedAs(t, b.slip(t, slip)), "ORIGINAL")
	}
	b.ends(t, map[txmanager.Submitter]int{s: 3})
	for how, want := range ends {
		b.wantState(t, how, ids[how], want)
	}
	b.wantPlaceholder(t, "signs and fails", ids["signs and fails"], "the employee has left")
	b.versions(t, ids["signs twice"], "ORIGINAL")
	b.versions(t, ids["signs and fails"], "ORIGINAL", "PLACEHOLDER")
}

// H32: a handler that sends its bytes itself, against the rule, and then does not answer, is no
// foreign signer. Its time-out says nothing about its bytes: they are mined and count.
func TestH32HandlerSendsByItself(t *testing.T) {
	t.Parallel()
	b := setup(t, withPayroll(t, stack.Options{Settings: quick}))
	b.payer(t)
	s := b.Submitters()[0]
	id, slip := b.wage(t, s, "r", "signs and hangs")
	check(t, b.Chain.MineExactly(b.slip(t, slip)))
	b.postUntilAnswered(t, transfer(s, "behind it"))
	b.ends(t, map[txmanager.Submitter]int{s: 2})
	b.wantState(t, "the intent", id, "CONFIRMED")
	b.wantCount(t, "PROTECT incidents", 0, `select count(*) from protect_incident`)
}

// H32: a process dies between signing for a handler and storing, or between storing and giving the
// handler the bytes. The stored bytes are sent, and there is one version.
func TestH32KilledWhileAHandlerSigns(t *testing.T) {
	t.Parallel()
	points := []string{"advance.version_signed", "advance.version_stored"}
	killedInTurn(t, withPayroll(t, stack.Options{}), points, func(t *testing.T, b bench, folder, point string) {
		b.payer(t)
		s := b.Submitters()[0]
		id, slip := b.wage(t, s, "r", "signs")
		b.killed(t, folder, point)
		b.ends(t, map[txmanager.Submitter]int{s: 1})
		b.versions(t, id, "ORIGINAL")
		b.wantState(t, "the intent", id, "CONFIRMED")
		if _, err := os.Stat(slip); (err == nil) != (point == "advance.version_signed") {
			t.Errorf("the slip: got %v, want one only of the handler that was asked again", err)
		}
	})
}
