package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// loadCommand makes this program the load process: a separate one, so that its CPU time is separate.
const loadCommand = "load"

// load is the load to post: creates of the submitters, or transfers of the users. Requests go to the
// function processes directly, because the platform's load balancer is not part of the cost.
type load struct {
	Addrs        []string
	Token        string
	Clients      int
	Submitters   []txmanager.Submitter // in turn
	UserTokens   []string              // of users in turn, who move money from Funding to Trading; nil: creates are posted
	Name         string                // prefix of the requestIds
	Transactions int
	PerSecond    float64   // 0: as fast as possible
	StartAt      time.Time // the first post
	Estimate     bool      // leave gas to the estimate
	Statuses     []int     // accepted answers
}

type posted struct {
	First, Last time.Time // the first request begins, the last answer comes
	Latencies   []float64 // in seconds, of each request

	cpu  float64 // CPU seconds of the load process
	busy float64 // CPU seconds of functions and Postgres meanwhile, where they are compared
}

// rate is the number of answers per second.
func (p posted) rate() float64 { return float64(len(p.Latencies)) / p.Last.Sub(p.First).Seconds() }

// run posts all requests from another process. An answer with another status than those of the load is
// an error.
func (l load) run(ctx context.Context) (p posted, err error) {
	defer steps.Return(&err)
	cmd := exec.CommandContext(ctx, steps.Value(os.Executable()), loadCommand)
	cmd.Stderr = os.Stderr
	in, out := steps.Value(cmd.StdinPipe()), steps.Value(cmd.StdoutPipe())
	steps.OK(cmd.Start())
	err = errors.Join(json.NewEncoder(in).Encode(l), in.Close(), json.NewDecoder(out).Decode(&p), cmd.Wait())
	steps.OK(err, "post")
	p.cpu = cmd.ProcessState.UserTime().Seconds() + cmd.ProcessState.SystemTime().Seconds()
	return p, nil
}

func loadMain(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	defer steps.Return(&err)
	var l load
	steps.OK(json.NewDecoder(in).Decode(&l))
	return json.NewEncoder(out).Encode(steps.Value(l.post(ctx)))
}

func (l load) post(ctx context.Context) (p posted, err error) {
	defer steps.Return(&err)
	requests := make([][]byte, l.Transactions)
	for i := range requests {
		requests[i] = l.request(i)
	}
	clients := make([]*client, l.Clients)
	for i := range clients {
		clients[i] = dial(ctx, l.Addrs[i%len(l.Addrs)])
		defer clients[i].Close()
	}
	p.Latencies = make([]float64, len(requests))
	failures := make([]error, len(clients))
	var next atomic.Int64
	var posting sync.WaitGroup
	retry.Pause(ctx, time.Until(l.StartAt))
	p.First = time.Now()
	for c, one := range clients {
		posting.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(requests) && failures[c] == nil && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				retry.Pause(ctx, l.wait(i, p.First))
				p.Latencies[i], failures[c] = one.post(requests[i], l.Statuses)
			}
		})
	}
	posting.Wait()
	p.Last = time.Now()
	return p, errors.Join(append(failures, ctx.Err())...)
}

// wait returns the time until request i is due.
func (l load) wait(i int, began time.Time) time.Duration {
	if l.PerSecond == 0 {
		return 0
	}
	return time.Until(began.Add(time.Duration(float64(i) / l.PerSecond * float64(time.Second))))
}

// request returns the bytes of a request on the wire.
func (l load) request(i int) []byte {
	if l.UserTokens != nil {
		body := fmt.Sprintf(`{"from":"FUNDING","to":"SPOT","asset":"USDT","amount":"0.000001","cid":"%s-%d"}`, l.Name, i)
		return onWire("/api/v1/internal_transfer", l.UserTokens[i%len(l.UserTokens)], body)
	}
	gas := `,"gas":"21000"`
	if l.Estimate {
		gas = ""
	}
	return onWire("/api/v1/tx", l.Token, fmt.Sprintf(`{"submitter":"%s","requestId":"%s-%d","payload":{"to":"0x%040x","value":"1"%s}}`,
		l.Submitters[i%len(l.Submitters)], l.Name, i, 0xcafe, gas))
}

func onWire(path, token, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, token, len(body), body)
}

type client struct {
	net.Conn
	answers *bufio.Reader
}

func dial(ctx context.Context, addr string) *client {
	conn := steps.Value(new(net.Dialer).DialContext(ctx, "tcp", addr))
	return &client{conn, bufio.NewReader(conn)}
}

const answerWithin = 30 * time.Second

// post sends the request and waits for an answer with one of the statuses. It returns the latency in
// seconds.
func (c *client) post(request []byte, statuses []int) (seconds float64, err error) {
	defer steps.Return(&err)
	began := time.Now()
	steps.OK(c.SetDeadline(began.Add(answerWithin)))
	steps.Value(c.Write(request))
	resp := steps.Value(http.ReadResponse(c.answers, nil))
	defer resp.Body.Close()
	text := steps.Value(io.ReadAll(resp.Body))
	if !slices.Contains(statuses, resp.StatusCode) {
		steps.Stopf("status %s: %s", resp.Status, text)
	}
	return time.Since(began).Seconds(), nil
}
