package acceptance

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/webhook"
)

// The deployment signs for the receivers of the examples by outdatedSecret and hookSecret. They know hookSecret and nextSecret.
var (
	outdatedSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("the secret before, of 32 bytes.."))
	nextSecret     = "whsec_" + base64.StdEncoding.EncodeToString([]byte("the next secret, of 32 bytes too"))
)

// exampleReceiver is a receiver of docs/examples, as a process.
type exampleReceiver struct {
	command, environment []string
	address              string
	held                 net.Listener // occupies the address until the first start
	out                  *acceptancetest.Log
	kill                 func() // nil: it never started
}

// start starts the process, and waits until it listens.
func (r *exampleReceiver) start(t *testing.T) {
	t.Helper()
	_ = r.held.Close() // the second time it is closed already
	c := exec.Command(r.command[0], r.command[1:]...)
	c.Env, c.Stdout, c.Stderr, c.WaitDelay = r.environment, r.out, r.out, 5*time.Second
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the command may be a wrapper: all its processes are killed
	check(t, c.Start())
	r.kill = func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL); _ = c.Wait() }
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	check(t, poll(within, func() bool {
		connection, err := net.Dial("tcp", r.address)
		if err == nil {
			err = connection.Close()
		}
		return err == nil
	}), "a receiver does not listen: ", r.command)
}

func (r *exampleReceiver) count(begin string) (n int) {
	for line := range strings.Lines(r.out.String()) {
		if strings.HasPrefix(line, begin) {
			n++
		}
	}
	return n
}

// prints checks how many lines the receiver has printed that begin with an outcome and an event's id. It prints a line
// before it answers.
func (r *exampleReceiver) prints(t *testing.T, begin string, want int) {
	t.Helper()
	within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_ = poll(within, func() bool { return r.count(begin) >= want })
	if got := r.count(begin); got != want {
		t.Fatalf("lines %q: got %d, want %d; of this event it printed:\n%s", begin, got, want, r.linesOf(begin))
	}
}

// linesOf returns the printed lines about the event of a line that begins so.
func (r *exampleReceiver) linesOf(begin string) string {
	var all []string
	for line := range strings.Lines(r.out.String()) {
		if strings.Contains(line, " "+strings.Fields(begin)[1]) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return cmp.Or(strings.Join(all, "\n"), "nothing")
}

// gets waits until the deployment has delivered what makes the receiver print that line.
func (r *exampleReceiver) gets(t *testing.T, b bench, begin string) {
	t.Helper()
	var cancel context.CancelFunc
	b.ctx, cancel = context.WithTimeout(b.ctx, 45*time.Second)
	defer cancel()
	defer func() {
		if t.Failed() {
			t.Logf("of this event it printed:\n%s", r.linesOf(begin))
		}
	}()
	b.swept(t, fmt.Sprintf("lines %q: got none, want one", begin), func() bool { return r.count(begin) > 0 })
}

type delivery struct {
	id, body string
	sent     string            // the body that is sent; "": the one that is signed
	secret   string            // signs it; "": hookSecret
	age      time.Duration     // of its time
	headers  map[string]string // in place of the signed ones
}

func (r *exampleReceiver) deliver(t *testing.T, what string, want int, d delivery) {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.address+"/", strings.NewReader(cmp.Or(d.sent, d.body))))(t)
	webhook.Sign(req.Header, d.id, time.Now().Add(-d.age), []byte(d.body), must(webhook.ParseKey(cmp.Or(d.secret, hookSecret)))(t))
	req.Close = true // the receiver may be killed afterwards
	for name, text := range d.headers {
		req.Header.Set(name, text)
	}
	resp := must(http.DefaultClient.Do(req))(t)
	if check(t, resp.Body.Close()); resp.StatusCode != want {
		t.Errorf("%s: got %d, want %d", what, resp.StatusCode, want)
	}
}

// receives checks the receiver of a language against the deployment's deliveries, its redelivery and its test, and
// against deliveries that no deployment makes.
func (x *examples) receives(t *testing.T, language string, kept []event) {
	if why := x.missing[language]; why != "" {
		t.Skip(why)
	}
	r, b := x.receivers[language], x.bench
	var cancel context.CancelFunc
	b.ctx, cancel = context.WithTimeout(x.ctx, 2*time.Minute) // all is delivered already, or will be within seconds
	defer cancel()
	for _, e := range kept {
		line := fmt.Sprintf("stored %s %s %s\n", e.key(), e.RequestID, resultOf(e))
		r.gets(t, b, line)
		r.prints(t, line, 1)
	}
	r.refuses(t)
	r.keepsOrder(t)

	again := delivery{id: kept[0].key(), body: value[string](t, b, `select body::text from event where tx_id = $1 and sequence = $2`, kept[0].TxID, kept[0].Sequence)}
	before := r.count("repeated " + again.id + " ")
	r.deliver(t, "a real event again", http.StatusNoContent, again)
	r.kill()
	r.start(t)
	r.deliver(t, "a real event again after a crash", http.StatusNoContent, again)
	r.prints(t, "repeated "+again.id+" ", before+2)
	r.deliver(t, "an older event after a crash", http.StatusNoContent, madeEvent(2, "TxSubmitted", "{}"))
	r.prints(t, "older made-TxSubmitted-2 ", 1)

	operator := must(x.Client(stack.OperatorAccount))(t)
	tried, err := operator.TestWebhookEndpoint(b.ctx, language, "does it answer?")
	if err != nil || !tried.Accepted {
		t.Errorf("the endpoint's test: got %+v, %v; want it accepted", tried, err)
	}
	r.prints(t, "ignored test-", 1)
	_, err = operator.RedeliverEvents(b.ctx, language, client.RedeliveryRequest{After: "0", Reason: "it may have lost some"})
	check(t, err, "redeliver")
	for _, e := range kept {
		r.gets(t, b, "repeated "+e.key()+" ")
		r.prints(t, "stored "+e.key()+" ", 1)
	}
}

// resultOf returns what the receivers print as an event's result.
func resultOf(e event) string {
	switch {
	case e.Data.Final:
		return "paid"
	case e.Type == string(txmanager.TxFailed):
		return "failed"
	}
	return "open"
}

// madeEvent returns a delivery that no deployment made.
func madeEvent(sequence int, kind, data string) delivery {
	return delivery{id: fmt.Sprintf("made-%s-%d", kind, sequence), body: fmt.Sprintf(
		`{"type": %q, "timestamp": "2026-01-01T00:00:00.000001Z", "txId": "made", "submitter": "eip155:1:0x00", "requestId": "order-1", "sequence": %d, "data": %s}`,
		kind, sequence, data)}
}

// refuses checks that forged and old deliveries are refused, and have no effect.
func (r *exampleReceiver) refuses(t *testing.T) {
	t.Helper()
	for what, change := range map[string]func(d *delivery){
		"another secret":     func(d *delivery) { d.secret = shopSecret },
		"an outdated secret": func(d *delivery) { d.secret = outdatedSecret },
		"six minutes old":    func(d *delivery) { d.age = 6 * time.Minute },
		"six minutes ahead":  func(d *delivery) { d.age = -6 * time.Minute },
		"an old one, renewed": func(d *delivery) {
			d.age, d.headers = time.Hour, map[string]string{"webhook-timestamp": fmt.Sprint(time.Now().Unix())}
		},
		"no time":         func(d *delivery) { d.headers = map[string]string{"webhook-timestamp": ""} },
		"a time in words": func(d *delivery) { d.headers = map[string]string{"webhook-timestamp": "now"} },
		"another id":      func(d *delivery) { d.headers = map[string]string{"webhook-id": "made-TxConfirmed-5"} },
		"no id":           func(d *delivery) { d.headers = map[string]string{"webhook-id": ""} },
		"another body":    func(d *delivery) { d.sent = strings.Replace(d.body, "order-1", "order-2", 1) },
		"no signature":    func(d *delivery) { d.headers = map[string]string{"webhook-signature": ""} },
	} {
		d := madeEvent(4, "TxConfirmed", `{"final": true}`)
		change(&d)
		r.deliver(t, what, http.StatusUnauthorized, d)
	}
	for _, outcome := range []string{"stored", "older", "repeated", "ignored"} {
		equal(t, fmt.Sprintf("refused deliveries that were %s", outcome), r.count(outcome+" made"), 0)
	}
}

// keepsOrder checks that an event that comes after a later one of its transaction changes nothing, and neither does one
// that comes again. The second secret of the receiver is valid too.
func (r *exampleReceiver) keepsOrder(t *testing.T) {
	t.Helper()
	last := madeEvent(4, "TxConfirmed", `{"final": true}`)
	last.secret = nextSecret
	r.deliver(t, "the last event, signed by the next secret", http.StatusNoContent, last)
	r.prints(t, "stored made-TxConfirmed-4 order-1 paid\n", 1)
	for times := range 2 {
		r.deliver(t, "an event before it", http.StatusNoContent, madeEvent(3, "TxReceiptUpdated", `{"status": "succeeded"}`))
		r.prints(t, "older made-TxReceiptUpdated-3 order-1 open\n", 1)
		r.prints(t, "repeated made-TxReceiptUpdated-3 ", times)
		r.deliver(t, "the last event again", http.StatusNoContent, last)
		r.prints(t, "repeated made-TxConfirmed-4 ", times+1)
	}
	// It would be stored if the event before it had replaced the last one.
	r.deliver(t, "another event at its place", http.StatusNoContent, madeEvent(4, "TxReceiptUpdated", `{"status": "succeeded"}`))
	r.prints(t, "older made-TxReceiptUpdated-4 order-1 open\n", 1)
}
