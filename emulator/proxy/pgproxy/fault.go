package pgproxy

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of fault, which strikes a transaction at its commit.
//
// The commit is the message that makes the server commit. It is an Execute or a simple Query of commit, or
// the Sync or simple Query that ends a batch with writes outside a begin.
type Kind int

// The kinds of fault. A cut closes the connection on both sides.
const (
	// CutBeforeCommit forwards everything before the commit, and cuts when the commit arrives.
	CutBeforeCommit Kind = iota + 1

	// CutAfterCommit forwards the batch, reads the server's whole answer, and cuts without passing it on.
	// If the server did not commit, the client gets the answer and the fault stays armed. (If the server
	// closes before it has answered, the fault is used up without a hit.)
	CutAfterCommit

	// CutMidReply is CutAfterCommit with half of the answer's bytes passed on, ending inside a message.
	CutMidReply

	// Freeze holds the commit and everything after it, in both directions. It keeps both sockets open
	// even if one side closes, as in a network that loses all packets. The held bytes are delivered when
	// the freeze ends, even without the client. Other connections, and requests to cancel, pass.
	Freeze
)

var kindNames = map[Kind]string{
	0: "none", CutBeforeCommit: "cut before commit", CutAfterCommit: "cut after commit", CutMidReply: "cut in the middle of the reply", Freeze: "freeze",
}

// String returns the kind's name for logs.
func (k Kind) String() string { return cmp.Or(kindNames[k], "unknown") }

// Fault strikes the next transactions that match.
type Fault struct {
	Kind  Kind
	Times int // number of transactions that it strikes; 0 means 1

	// Match selects by the statements that the transaction has run so far, with the commit if that is a
	// statement. A simple Query is split at semicolons. It must not call the proxy. nil selects every
	// transaction.
	Match func(sql []string) bool

	For time.Duration // how long a Freeze lasts; 0: until Thaw or CutAll
}

// Containing selects transactions with a statement that contains the fragment.
func Containing(fragment string) func(sql []string) bool {
	return func(sql []string) bool {
		return slices.ContainsFunc(sql, func(s string) bool { return strings.Contains(s, fragment) })
	}
}

type fault struct {
	Fault
	left int
}

// Arm arms f. If several faults match, the first one armed strikes.
func (p *Proxy) Arm(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = append(p.armed, &fault{Fault: f, left: max(f.Times, 1)})
}

// Disarm removes every fault that has not struck. A running freeze continues.
func (p *Proxy) Disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = nil
}

// Armed returns how many transactions are still to be struck.
func (p *Proxy) Armed() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.armed {
		n += f.left
	}
	return n
}

// Counts returns the counts so far. A hit is counted before the client can notice it.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.counts
	c.Hits = maps.Clone(c.Hits)
	return c
}

// claim uses one strike of the first fault that matches, or returns nil.
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

// unclaim undoes a claim without a strike.
func (p *Proxy) unclaim(f *fault) {
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
