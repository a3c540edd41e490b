package attacks

import (
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/webhook"
)

// served is one request to a service in this process.
type served struct {
	header http.Header
	body   []byte
}

// service answers as a test wants it to, and keeps the requests.
type service struct {
	*httptest.Server
	mu    sync.Mutex
	asked []served
}

func serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, body []byte, before int)) *service {
	t.Helper()
	s := new(service)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		before := len(s.asked)
		s.asked = append(s.asked, served{r.Header.Clone(), body})
		s.mu.Unlock()
		answer(w, r, body, before)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *service) all() []served {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// set makes a number of a transaction's form.
func set[T any, P interface {
	*T
	SetUint64(uint64) P
}](field *P, n uint64) {
	*field = P(new(T)).SetUint64(n)
}

// bytesOf are signed transactions that no service may have sent: of forms that the nodes
// know, and that are no call by this account on this chain alone.
func bytesOf(how string, key *ecdsa.PrivateKey, n, chain uint64) ([]byte, error) {
	to, price := common.HexToAddress(receiver), big.NewInt(50_000_000_000)
	signer, data := types.LatestSignerForChainID(new(big.Int).SetUint64(chain)), types.TxData(nil)
	switch how {
	case "blobs":
		tx := &types.BlobTx{Nonce: n, To: to, Gas: 21_000, BlobHashes: []common.Hash{{1}}}
		set(&tx.ChainID, chain)
		set(&tx.GasFeeCap, 50_000_000_000)
		set(&tx.GasTipCap, 1)
		set(&tx.BlobFeeCap, 50_000_000_000)
		set(&tx.Value, 1)
		data = tx
	case "delegates":
		given := types.SetCodeAuthorization{Address: common.HexToAddress(robber), Nonce: n + 1}
		given.ChainID.SetUint64(chain)
		given, err := types.SignSetCode(key, given)
		if err != nil {
			return nil, err
		}
		tx := &types.SetCodeTx{Nonce: n, To: to, Gas: 100_000, AuthList: []types.SetCodeAuthorization{given}}
		set(&tx.ChainID, chain)
		set(&tx.GasFeeCap, 50_000_000_000)
		set(&tx.GasTipCap, 1)
		set(&tx.Value, 1)
		data = tx
	case "names no chain":
		signer, data = types.HomesteadSigner{}, &types.LegacyTx{Nonce: n, To: &to, Value: big.NewInt(1), Gas: 21_000, GasPrice: price}
	case "signs too much":
		to := common.HexToAddress(robber)
		data = &types.LegacyTx{Nonce: n, To: &to, Value: big.NewInt(5), Gas: 21_000, GasPrice: price}
	}
	tx, err := types.SignNewTx(key, signer, data)
	if err != nil {
		return nil, err
	}
	return tx.MarshalBinary()
}

// A handler that was broken into answers what it should not: each costs a placeholder, its
// redirect is not followed, and of a long answer little is kept. A receiver of events that
// was broken into leads to no other service by a redirect, and gets the same event again.
// Requests to both are proved by each of two secrets, while one takes the other's place.
func TestServicesThatWereBrokenInto(t *testing.T) {
	t.Parallel()
	elsewhere := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) {
		fmt.Fprintf(w, `{"transaction": {"to": %q, "value": "1"}}`, robber)
	})
	keys := map[string]*ecdsa.PrivateKey{}
	handler := serve(t, func(w http.ResponseWriter, r *http.Request, body []byte, _ int) {
		var o struct {
			Submitter      string
			Nonce, ChainID uint64
			Payload        struct{ How string }
		}
		if err := json.Unmarshal(body, &o); err != nil {
			t.Errorf("asked %s: %v", body, err)
		}
		switch how := o.Payload.How; how {
		case "redirects":
			http.Redirect(w, r, elsewhere.URL+"/info", http.StatusTemporaryRedirect)
		case "talks for long":
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprintf(w, `{"detail": %q}`, strings.Repeat("x", 400_000))
		case "asks too much":
			fmt.Fprintf(w, `{"transaction": {"to": %q, "value": "5"}}`, receiver)
		case "pays somebody else":
			fmt.Fprintf(w, `{"transaction": {"to": %q, "value": "1"}}`, robber)
		case "deploys":
			fmt.Fprint(w, `{"transaction": {"data": "0x00"}}`)
		default:
			raw, err := bytesOf(how, keys[o.Submitter], o.Nonce, o.ChainID)
			if err != nil {
				t.Errorf("%s: %v", how, err)
			}
			fmt.Fprintf(w, `{"signedTransaction": "0x%x"}`, raw)
		}
	})
	events := serve(t, func(w http.ResponseWriter, r *http.Request, _ []byte, before int) {
		if before == 0 {
			http.Redirect(w, r, elsewhere.URL+"/info", http.StatusPermanentRedirect)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	h := setup(t, stack.Options{Processes: 1, Settings: map[string]string{
		"FENCEPOST_HANDLERS_URLS": "shop=" + handler.URL, "FENCEPOST_HANDLERS_SECRETS": "shop=" + handlerSecret('o') + ",shop=" + handlerSecret('n'),
		"FENCEPOST_EVENTS_MODE": "webhook", "FENCEPOST_EVENTS_WEBHOOK_URLS": "books=" + events.URL,
		"FENCEPOST_EVENTS_WEBHOOK_SECRETS": "books=" + handlerSecret('o') + ",books=" + handlerSecret('n'),
	}})
	s := h.Submitters()[0]
	info := must(h.Info(h.ctx))(t)
	for _, a := range info.Submitters {
		keys[a.Submitter] = must(crypto.HexToECDSA(strings.TrimPrefix(a.PrivateKey, "0x")))(t)
	}
	operator, shop := h.operator(t), h.token(t, stack.CallerAccount)
	must(operator.SetCallers(h.ctx, string(s), []string{"email:" + stack.CallerAccount, "handler:shop"}, nil, "asks the shop"))(t)
	must(operator.SetPolicy(h.ctx, string(s), client.Policy{MaxValue: "1", Targets: []string{receiver}}, "one wei to one receiver"))(t)
	ends := map[string]string{
		"redirects":          "its service answered 307",
		"talks for long":     "its service answered 422",
		"asks too much":      "the submitter's policy allows at most 1 wei",
		"pays somebody else": "the submitter's policy does not allow this target",
		"deploys":            "the submitter's policy does not allow",
		"blobs":              "its bytes are a transaction of type 3",
		"delegates":          "its bytes are a transaction of type 4",
		"names no chain":     "its bytes name no chain",
		"signs too much":     "the submitter's policy allows at most 1 wei",
	}
	ids := map[string]string{}
	for how := range ends {
		in := intent(s, how)
		in["handler"], in["payload"] = "shop", map[string]any{"how": how}
		a := h.call(t, shop, http.MethodPost, "/api/v1/tx", in)
		a.wantStatus(t, how, http.StatusAccepted)
		ids[how] = a.TxID
	}
	unnamed := intent(s, "a handler of no list")
	unnamed["handler"], unnamed["payload"] = "other", map[string]any{}
	h.call(t, shop, http.MethodPost, "/api/v1/tx", unnamed).want(t, "a handler that nobody has", "400 INVALID_FIELD")
	elses := intent(h.Submitters()[1], "a handler that is not named")
	elses["handler"], elses["payload"] = "shop", map[string]any{"how": "asks too much"}
	h.call(t, shop, http.MethodPost, "/api/v1/tx", elses).wantStatus(t, "a handler that the submitter does not name", http.StatusForbidden)
	h.await(t, h.post(t, shop, s, "behind").TxID, "CONFIRMED")
	for how, want := range ends {
		h.await(t, ids[how], "FAILED")
		end := h.says(t, `select coalesce(sub_state, '') || ': ' || last_error from managed_tx where tx_id = $1`, ids[how])
		if !strings.HasPrefix(end, "PLACEHOLDER: ") || !strings.Contains(end, want) || len(end) > 1_000 {
			t.Errorf("%s: got %.300s (%d bytes), want a placeholder because of %q", how, end, len(end), want)
		}
		h.wantCount(t, how, 0, `select count(*) from tx_version where tx_id = $1 and kind <> 'PLACEHOLDER'`, ids[how])
	}
	h.robbedOfNothing(t)
	h.provedByEither(t, "the handler", handler)
	h.provedByEither(t, "the receiver", events)
	if all := events.all(); len(all) > 1 && all[0].header.Get(webhook.HeaderID) != all[1].header.Get(webhook.HeaderID) {
		t.Errorf("after a redirect: told %s and then %s, want the same again", all[0].header.Get(webhook.HeaderID), all[1].header.Get(webhook.HeaderID))
	}
	if n := len(elsewhere.all()); n != 0 {
		t.Errorf("where redirects lead: asked %d times, want never", n)
	}
}

// provedByEither wants each request to be proved by the old secret alone, and by the new
// one, and by no third, nor later, nor with another body.
func (h deployment) provedByEither(t *testing.T, who string, s *service) {
	t.Helper()
	key := func(b byte) webhook.Key {
		return must(webhook.ParseKey(handlerSecret(b)))(t)
	}
	all := s.all()
	if len(all) < 2 {
		t.Fatalf("%s: asked %d times: this test sees nothing", who, len(all))
	}
	proves := func(r served, at time.Time, body []byte, by byte) bool {
		_, err := webhook.Verify(r.header, at, body, key(by))
		return err == nil
	}
	for _, r := range all {
		now := time.Now()
		if !proves(r, now, r.body, 'o') || !proves(r, now, r.body, 'n') {
			t.Errorf("%s: a request that one of the two secrets does not prove: %v", who, r.header)
		}
		if proves(r, now, r.body, 'x') || proves(r, now.Add(10*time.Minute), r.body, 'n') || proves(r, now, append([]byte(" "), r.body...), 'n') {
			t.Errorf("%s: a request is proved by a third secret, ten minutes later, or with another body", who)
		}
	}
}
