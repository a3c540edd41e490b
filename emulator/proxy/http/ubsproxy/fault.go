package ubsproxy

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	httpproxy "github.com/fencepost/fencepost/emulator/proxy/http"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Kind is a kind of fault.
type Kind int

// The kinds of fault. When a kept connection is closed, net/http can repeat the request: that counts
// as another call.
const (
	Refuse      Kind = iota + 1 // closes the connection without the core
	LoseAnswer                  // passes the call to the core, and closes the connection without its answer
	Hang                        // gives no answer until the caller has left; the core does not get the call
	HoldAnswer                  // passes the call to the core, and holds the answer until the caller has left
	Duplicate                   // passes the call to the core three times at once; see Differed
	Late                        // as Hang, but the core gets the call with the next [Proxy.Deliver]
	Unavailable                 // answers 503 without the core
	CutAnswer                   // passes the call to the core and half of the answer to the caller, and closes the connection
	Differed                    // counts duplicates that all were answered, but not the same: they are answered 500. It cannot be armed
)

// Fault strikes the calls that match.
type Fault struct {
	Kind   Kind
	Op     transfer.Op // "": any operation
	UserID int64       // 0: any user
	Times  int         // number of calls that it strikes; 0: all until it is disarmed
}

func (f *Fault) matches(c *Call) bool {
	return (f.Op == "" || f.Op == c.Operation.Op) && (f.UserID == 0 || c.Operation.UserID != nil && f.UserID == *c.Operation.UserID)
}

// held is a call that waits for its delivery.
type held struct {
	request *http.Request
	call    *Call
	body    []byte
}

// Arm arms f until disarm is called. If several faults match a call, the first one armed strikes.
func (p *Proxy) Arm(f Fault) (disarm func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, &f)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.faults = slices.DeleteFunc(p.faults, func(g *Fault) bool { return g == &f })
	}
}

// Struck returns how often the kind has struck.
func (p *Proxy) Struck(k Kind) int { return p.Counts()[k] }

// strike returns the kind of the fault that strikes the call; 0: none.
func (p *Proxy) strike(c *Call) Kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c == nil {
		return 0
	}
	for i, f := range p.faults {
		if f.matches(c) {
			if f.Times--; f.Times == 0 { // a fault without a limit is below 0 now
				p.faults = slices.Delete(p.faults, i, i+1)
			}
			p.Count(f.Kind)
			return f.Kind
		}
	}
	return 0
}

var errFault = errors.New("connection closed by a fault")

// carry returns the answer to the call under the faults. An error closes the connection, and so does an answer that is
// shorter than its Content-Length.
func (p *Proxy) carry(r *http.Request, c *Call, body []byte) (*http.Response, []byte, error) {
	lasting := context.WithoutCancel(r.Context())
	switch p.strike(c) {
	default:
		return p.pass(r.Context(), r, c, body)
	case Duplicate:
		return p.callThrice(r, c, body)
	case CutAnswer:
		resp, answer, err := p.pass(lasting, r, c, body)
		if err == nil {
			resp.Header.Set("Content-Length", strconv.Itoa(len(answer)))
		}
		return resp, answer[:len(answer)/2], err
	case Unavailable:
		h := http.Header{"Content-Type": {"application/problem+json"}}
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: h}, []byte(`{"code":"UNAVAILABLE"}`), nil
	case Refuse:
	case LoseAnswer:
		_, _, _ = p.pass(lasting, r, c, body)
	case Hang:
		httpproxy.Hang(r.Context())
	case HoldAnswer:
		_, _, _ = p.pass(lasting, r, c, body)
		httpproxy.Hang(r.Context())
	case Late:
		p.mu.Lock()
		p.late = append(p.late, held{r.Clone(lasting), c, body})
		p.mu.Unlock()
		httpproxy.Hang(r.Context())
	}
	return nil, nil, errFault
}

// callThrice passes the call to the core three times at once and returns the first answer.
func (p *Proxy) callThrice(r *http.Request, c *Call, body []byte) (*http.Response, []byte, error) {
	var responses [3]*http.Response
	var answers [3][]byte
	var errs [3]error
	var asking sync.WaitGroup
	for i := range answers {
		asking.Go(func() {
			responses[i], answers[i], errs[i] = p.pass(context.WithoutCancel(r.Context()), r, c, body)
		})
	}
	asking.Wait()
	if errors.Join(errs[:]...) == nil && !(bytes.Equal(answers[0], answers[1]) && bytes.Equal(answers[0], answers[2])) {
		p.Count(Differed)
		responses[0] = &http.Response{StatusCode: http.StatusInternalServerError, Header: http.Header{}}
	}
	return responses[0], answers[0], errs[0]
}

const deliverWithin = 10 * time.Second

// Deliver passes the user's calls held as [Late] to the core, the last first. It returns how many
// reached the core. User 0 is every user.
func (p *Proxy) Deliver(ctx context.Context, userID int64) (reached int) {
	var late []held
	p.mu.Lock()
	p.late = slices.DeleteFunc(p.late, func(h held) bool {
		due := userID == 0 || h.call.Operation.UserID != nil && *h.call.Operation.UserID == userID
		if due {
			late = append(late, h)
		}
		return due
	})
	p.mu.Unlock()
	slices.Reverse(late)
	for _, h := range late {
		limited, cancel := context.WithTimeout(ctx, deliverWithin)
		if _, _, err := p.pass(limited, h.request, h.call, h.body); err == nil {
			reached++
		}
		cancel()
	}
	return reached
}
