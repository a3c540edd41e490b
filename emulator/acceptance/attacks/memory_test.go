package attacks

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const (
	stranger     = "stranger@elsewhere.example" // has a token, and no list names it
	unregistered = txmanager.Submitter("eip155:1337:0x00000000000000000000000000000000000000ff")
)

// hostile returns a batch of n intents, each with another tuple and too little gas.
func hostile(r *rand.Rand, s txmanager.Submitter, n int) string {
	intents := make([]string, n)
	for i := range intents {
		var types, values []string
		for range 24 {
			if r.IntN(4) == 0 {
				types, values = append(types, "bool"), append(values, "true")
			} else {
				types, values = append(types, "uint"+strconv.Itoa(8+8*r.IntN(32))), append(values, "7")
			}
		}
		intents[i] = fmt.Sprintf(`{"submitter":%q,"requestId":"%d","payload":{"to":"0x00000000000000000000000000000000000cafe0","gas":"1","function":"f((%s)[])","args":[[[%s]]]}}`,
			s, i, strings.Join(types, ","), strings.Join(values, ","))
	}
	return `{"intents":[` + strings.Join(intents, ",") + `]}`
}

// refused posts a batch as the account, and wants each of its intents refused so.
func (b deployment) refused(t testing.TB, account, batch, want string) {
	t.Helper()
	status, answer, err := b.Call(b.ctx, account, http.MethodPost, "/api/v1/tx:batch", json.RawMessage(batch))
	var body struct {
		Results []struct{ Code, Field string }
	}
	if err != nil || status != http.StatusOK || json.Unmarshal(answer, &body) != nil || len(body.Results) == 0 {
		t.Fatalf("hostile batch: got %d %.300s, %v; want 200", status, answer, err)
	}
	for _, r := range body.Results {
		if got := r.Code + " " + r.Field; got != want {
			t.Fatalf("hostile intent: got %s, want %s", got, want)
		}
	}
}

// resident returns the resident memory of the function process, in bytes.
func (b deployment) resident(t testing.TB) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.Processes()[0].PID()))
	if err != nil {
		t.Skipf("needs Linux's /proc: %v", err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kB := must(strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64))(t)
			return kB << 10
		}
	}
	t.Skip("this kernel does not tell RssAnon")
	return 0
}

// tight collects garbage often, so that resident memory is retained memory.
var tight = map[string]string{"GOGC": "20"}

// New signatures leave no memory behind in a process, whether an unauthorised caller posts them, whose
// payloads are not read, or a caller whose payloads are.
func TestHostileSignaturesLeaveNoMemory(t *testing.T) {
	t.Parallel()
	for _, who := range []struct{ account, want string }{
		{stranger, "UNKNOWN_SUBMITTER "},
		{stack.CallerAccount, "INVALID_FIELD payload.gas"},
	} {
		parallel(t, who.account, func(t *testing.T) {
			b := attacked(t, stack.Options{Settings: tight})
			b.Issuer.AddAccount(stranger)
			s := unregistered
			if who.account == stack.CallerAccount {
				s = b.Submitters()[0]
			}
			r := rand.New(rand.NewPCG(1, 1))
			same := hostile(r, s, 400)
			for range 10 {
				b.refused(t, who.account, same, who.want)
			}
			before := b.resident(t)
			const batches = 20
			for range batches {
				b.refused(t, who.account, hostile(r, s, 400), who.want)
			}
			const limit = batches * 400 * 2560 // a Go type for each of these tuples would take three times as much
			grown := b.resident(t) - before
			for deadline := time.Now().Add(time.Minute); grown > limit && time.Now().Before(deadline); grown = b.resident(t) - before {
				b.refused(t, who.account, same, who.want) // makes garbage, so that it is collected
			}
			t.Logf("resident before: %d MB; %d MB more after %d batches", before>>20, grown>>20, batches)
			if grown > limit {
				t.Errorf("resident after %d batches: got %d MB more, want at most %d MB", batches, grown>>20, limit>>20)
			}
		})
	}
}

// A caller that begins requests without sending their bodies uses at most its share of an instance.
// Its other requests are refused, and other callers are served.
func TestUnsentBodiesOfOneCaller(t *testing.T) {
	t.Parallel()
	const limit, begun = 32, 40
	b := attacked(t, stack.Options{Settings: map[string]string{"FENCEPOST_HTTP_MAX_REQUESTS_PER_CALLER": strconv.Itoa(limit), "FENCEPOST_HTTP_BODY_TIMEOUT": "10m"}})
	b.Issuer.AddAccount(stranger)
	token := b.token(t, stranger)
	answers := make(chan string, begun)
	for range begun {
		conn := must(net.Dial("tcp", b.Processes()[0].Addr()))(t)
		t.Cleanup(func() { _ = conn.Close() })
		must(fmt.Fprintf(conn, "POST /api/v1/tx:batch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n{", token))(t)
		go func() { answers <- answerOn(conn) }() // ends with the connection
	}
	for i := range begun - limit {
		select {
		case answer := <-answers:
			equal(t, fmt.Sprint("answer ", i), answer, "429 TOO_MANY_REQUESTS, again after 1")
		case <-b.ctx.Done():
			t.Fatalf("answers: got %d, want %d", i, begun-limit)
		}
	}
	b.post(t, b.token(t, stack.CallerAccount), b.Submitters()[0], "r").wantStatus(t, "another caller meanwhile", http.StatusAccepted)
	select {
	case answer := <-answers:
		t.Errorf("one more of the stranger's: got %s, want %d at work", answer, limit)
	default:
	}
}

// answerOn is the answer that comes on a connection, in short.
func answerOn(conn net.Conn) string {
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var problem struct{ Code string }
	if err := json.NewDecoder(resp.Body).Decode(&problem); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s, again after %s", resp.StatusCode, problem.Code, resp.Header.Get("Retry-After"))
}

// BenchmarkHostileRequests posts batches, and tells the resident size after the first
// hundred and after all:
//
//	go test ./emulator/acceptance/attacks -run '^$' -bench HostileRequests -benchtime 10000x -timeout 1h
func BenchmarkHostileRequests(b *testing.B) {
	b.Run("Stranger", func(b *testing.B) {
		benchmarkHostile(b, stranger, "UNKNOWN_SUBMITTER ", func(deployment) txmanager.Submitter { return unregistered })
	})
	b.Run("Caller", func(b *testing.B) {
		benchmarkHostile(b, stack.CallerAccount, "INVALID_FIELD payload.gas", func(h deployment) txmanager.Submitter { return h.Submitters()[0] })
	})
}

func benchmarkHostile(b *testing.B, account, want string, of func(deployment) txmanager.Submitter) {
	h := attacked(b, stack.Options{})
	h.Issuer.AddAccount(stranger)
	r := rand.New(rand.NewPCG(1, 2))
	post := func() { h.refused(b, account, hostile(r, of(h), 400), want) }
	for range 100 {
		post()
	}
	before := h.resident(b)
	b.ResetTimer()
	for range b.N {
		post()
	}
	after := h.resident(b)
	b.ReportMetric(float64(before>>20), "MB-before")
	b.ReportMetric(float64(after>>20), "MB-after")
	b.ReportMetric(float64(after)/float64(before), "after/before")
}
