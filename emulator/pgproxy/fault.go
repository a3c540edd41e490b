package pgproxy

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Kind is what happens to a transaction at its commit.
//
// The commit is the message that makes the server commit: an Execute or a
// simple Query of commit, or the Sync or simple Query that ends a batch which
// writes outside a begin.
type Kind int

// The kinds of fault. A cut closes the connection on both sides.
const (
	// CutBeforeCommit cuts when the commit arrives, and forwards all but it.
	CutBeforeCommit Kind = iota + 1

	// CutAfterCommit forwards the batch, reads the server's whole answer to it,
	// and cuts instead of passing on any of it. If the server did not commit,
	// the client gets the answer and the fault stays armed. (Where the server
	// goes away before it has answered, the fault is used up without a hit.)
	CutAfterCommit

	// CutMidReply is CutAfterCommit with half of the answer's bytes passed on,
	// ending inside a message.
	CutMidReply

	// Freeze holds back the commit and everything after it, both ways, and
	// keeps both sockets open whatever happens to the other: neither side can
	// tell it from a network that lost all packets. What was held back goes on
	// when the freeze ends, even if the client has gone by then. Other
	// connections are not touched, a request to cancel included.
	Freeze
)

// String names the kind for logs.
func (k Kind) String() string {
	names := []string{"none", "cut before commit", "cut after commit", "cut in the middle of the reply", "freeze"}
	if k < 0 || int(k) >= len(names) {
		return "unknown"
	}
	return names[k]
}

// Fault is harm to be done to the next transactions that match.
type Fault struct {
	Kind  Kind
	Times int // how many transactions it strikes; 0 is one

	// Match chooses by the statements that the transaction has run so far, the
	// commit included where it is one. A simple Query is split at semicolons.
	// It must not call the proxy. nil chooses every transaction.
	Match func(sql []string) bool

	For time.Duration // how long a Freeze lasts; 0: until Thaw or CutAll
}

// Containing chooses transactions of which one statement contains the fragment.
func Containing(fragment string) func(sql []string) bool {
	return func(sql []string) bool {
		return slices.ContainsFunc(sql, func(s string) bool { return strings.Contains(s, fragment) })
	}
}

// fault is one that is armed.
type fault struct {
	Fault
	left int
}

// Arm has f strike from now on. Of several faults that match, the one armed
// first strikes.
func (p *Proxy) Arm(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = append(p.armed, &fault{Fault: f, left: max(f.Times, 1)})
}

// Disarm forgets every fault that has not struck. A freeze that lasts goes on.
func (p *Proxy) Disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = nil
}

// Armed is how many transactions are still to be struck.
func (p *Proxy) Armed() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.armed {
		n += f.left
	}
	return n
}

// Counts is what the proxy has seen and done so far. A hit is counted before
// its client can notice it.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.counts
	c.Hits = maps.Clone(c.Hits)
	return c
}

// claim takes one strike of the first fault that matches, or is nil.
func (p *Proxy) claim(sql []string) *fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.armed {
		if f.left > 0 && (f.Match == nil || f.Match(sql)) {
			f.left--
			return f
		}
	}
	return nil
}

// giveBack undoes a claim that did not come to a strike.
func (p *Proxy) giveBack(f *fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.left++
}

func (p *Proxy) hit(k Kind) { p.count(func(c *Counts) { c.Hits[k]++ }) }

func (p *Proxy) count(add func(*Counts)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add(&p.counts)
}
