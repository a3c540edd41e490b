package ubsproxy

import (
	"context"
	"errors"
	"net/http"
	"slices"
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
	// Refuse closes the connection without the core.
	Refuse Kind = iota + 1

	// LoseAnswer passes the call to the core, and closes the connection without its answer.
	LoseAnswer

	// Hang gives no answer until the caller has left; the core does not get the call.
	Hang

	// HoldAnswer passes the call to the core, and holds the answer until the caller has left.
	HoldAnswer

	// Duplicate passes the call to the core three times at once. If all are answered and the answers differ,
	// the call is answered 500 and counted as [Differed].
	Duplicate

	// Late gives no answer until the caller has left. The core gets the call with the next
	// [Proxy.Deliver].
	Late

	// Unavailable answers 503 without the core.
	Unavailable

	// CutAnswer passes the call to the core and half of the answer to the caller, and closes the
	// connection.
	CutAnswer

	// Differed cannot be armed: it counts duplicates with different answers.
	Differed
)

// Fault strikes the calls that match.
type Fault struct {
	Kind   Kind
	Op     transfer.Op // "": any operation
	UserID int64       // 0: any user
	Times  int         // number of calls that it strikes; 0: all until it is disarmed
}

type armed struct {
	Fault
	left int // of Times
}

func (a *armed) matches(c *Call) bool {
	return (a.Times == 0 || a.left > 0) && (a.Op == "" || a.Op == c.Operation.Op) &&
		(a.UserID == 0 || c.Operation.UserID != nil && a.UserID == *c.Operation.UserID)
}

// held is a call that waits for its delivery.
type held struct {
	request *http.Request
	call    *Call
	body    []byte
}

// Arm arms f until disarm is called. If several faults match a call, the first one armed strikes.
func (p *Proxy) Arm(f Fault) (disarm func()) {
	a := &armed{Fault: f, left: f.Times}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, a)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.faults = slices.DeleteFunc(p.faults, func(b *armed) bool { return b == a })
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
	for _, a := range p.faults {
		if a.matches(c) {
			a.left--
			p.Count(a.Kind)
			return a.Kind
		}
	}
	return 0
}

// Errors that close the connection.
var (
	errFault = errors.New("connection closed by a fault")
	errCut   = errors.New("cut by a fault: half of the answer is passed on")
)

// carry returns the answer to the call under the faults. An error closes the connection, errCut after
// half of the answer.
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
			err = errCut
		}
		return resp, answer, err
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
func (p *Proxy) callThrice(r *http.Request, c *Call, body []byte) (first *http.Response, answer []byte, err error) {
	var answers [3]string
	var errs [3]error
	var asking sync.WaitGroup
	for i := range answers {
		asking.Go(func() {
			resp, text, failed := p.pass(context.WithoutCancel(r.Context()), r, c, body)
			answers[i], errs[i] = string(text), failed
			if i == 0 {
				first, answer, err = resp, text, failed
			}
		})
	}
	asking.Wait()
	if errors.Join(errs[:]...) == nil && (answers[0] != answers[1] || answers[0] != answers[2]) {
		p.Count(Differed)
		first = &http.Response{StatusCode: http.StatusInternalServerError, Header: http.Header{}}
	}
	return first, answer, err
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
