package ubsproxy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Kind is what happens to a call.
type Kind int

// The kinds of fault. A caller whose connection is closed may ask again by itself,
// as net/http does where it had kept the connection; that is a call of its own.
const (
	// Refuse closes the connection; the core is not asked.
	Refuse Kind = iota + 1

	// LoseAnswer has the core asked, and closes the connection instead of passing
	// its answer on.
	LoseAnswer

	// Hang asks nobody and answers nothing until the caller has left.
	Hang

	// HoldAnswer has the core asked, and holds its answer back until the caller
	// has left.
	HoldAnswer

	// Duplicate asks the core three times at once. The answers must be the same,
	// or the call is answered 500 and counted as [Differed].
	Duplicate

	// Late answers nothing until the caller has left; the core is asked when
	// [Proxy.Deliver] is called, however much later.
	Late

	// Unavailable answers 503; the core is not asked.
	Unavailable

	// CutAnswer has the core asked, passes half of its answer on, and closes the
	// connection.
	CutAnswer

	// Differed is no fault to arm: it counts duplicates that were answered
	// differently.
	Differed
)

// Fault is harm to be done to calls that match.
type Fault struct {
	Kind   Kind
	Op     transfer.Op // "": of any operation
	UserID int64       // 0: of any user
	Times  int         // of the calls that it strikes; 0: until it is disarmed
}

type armed struct {
	Fault
	left int // of Times
	off  bool
}

func (a *armed) matches(c *Call) bool {
	return !a.off && (a.Times == 0 || a.left > 0) && (a.Op == "" || a.Op == c.Operation.Op) &&
		(a.UserID == 0 || c.Operation.UserID != nil && a.UserID == *c.Operation.UserID)
}

// held is a call that nobody has delivered yet.
type held struct {
	request *http.Request
	call    *Call
	body    []byte
}

// Arm has f strike from now on, until disarm is called. Of several faults that
// match, the one armed first strikes.
func (p *Proxy) Arm(f Fault) (disarm func()) {
	a := &armed{Fault: f, left: f.Times}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, a)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		a.off = true
		p.faults = slices.DeleteFunc(p.faults, func(b *armed) bool { return b == a })
	}
}

// Struck is how often each kind has struck so far.
func (p *Proxy) Struck(k Kind) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.struck[k]
}

// strike is the kind of the fault that strikes the call; 0: none.
func (p *Proxy) strike(c *Call) Kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c == nil {
		return 0
	}
	for _, a := range p.faults {
		if a.matches(c) {
			a.left--
			p.struck[a.Kind]++
			return a.Kind
		}
	}
	return 0
}

// What becomes of an answer. Either closes the connection.
var (
	errSpoiled = errors.New("spoiled by a fault")
	errCut     = errors.New("cut by a fault: half of the answer is passed on")
)

// carry has the call answered, or spoiled. An error closes the connection, errCut
// after half of the answer.
func (p *Proxy) carry(r *http.Request, c *Call, body []byte) (*http.Response, []byte, error) {
	lasting := context.WithoutCancel(r.Context())
	switch p.strike(c) {
	case Refuse:
		return nil, nil, errSpoiled
	case LoseAnswer:
		_, _, _ = p.pass(lasting, r, c, body)
		return nil, nil, errSpoiled
	case Hang:
		wait(r.Context())
		return nil, nil, errSpoiled
	case HoldAnswer:
		_, _, _ = p.pass(lasting, r, c, body)
		wait(r.Context())
		return nil, nil, errSpoiled
	case Duplicate:
		return p.thrice(r, c, body)
	case CutAnswer:
		resp, answer, err := p.pass(lasting, r, c, body)
		if err == nil {
			err = errCut
		}
		return resp, answer, err
	case Late:
		p.mu.Lock()
		p.late = append(p.late, held{r.Clone(lasting), c, body})
		p.mu.Unlock()
		wait(r.Context())
		return nil, nil, errSpoiled
	case Unavailable:
		h := http.Header{"Content-Type": {"application/problem+json"}}
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: h}, []byte(`{"code":"UNAVAILABLE"}`), nil
	}
	return p.pass(r.Context(), r, c, body)
}

// wait returns when the caller has left.
func wait(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, hangLimit)
	defer cancel()
	<-ctx.Done()
}

// thrice asks three times at once and passes on the first answer.
func (p *Proxy) thrice(r *http.Request, c *Call, body []byte) (first *http.Response, answer []byte, err error) {
	var answers [3]string
	var asking sync.WaitGroup
	for i := range answers {
		asking.Go(func() {
			resp, text, failed := p.pass(context.WithoutCancel(r.Context()), r, c, body)
			answers[i] = string(text)
			if i == 0 {
				first, answer, err = resp, text, failed
			}
		})
	}
	asking.Wait()
	if err == nil && (answers[0] != answers[1] || answers[0] != answers[2]) {
		p.mu.Lock()
		p.struck[Differed]++
		p.mu.Unlock()
		first = &http.Response{StatusCode: http.StatusInternalServerError, Header: http.Header{}}
	}
	return first, answer, err
}

// deliverWithin bounds one late delivery.
const deliverWithin = 10 * time.Second

// Deliver makes the calls for a user that were held back as [Late], the last
// first, and returns how many reached the core. User 0 is every user.
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
