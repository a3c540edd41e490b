package pgproxy

import (
	"bufio"
	"net"
	"strings"
	"sync"
	"time"
)

// session is one client's connection and the one to the server that stands for
// it.
type session struct {
	proxy          *Proxy
	client, server net.Conn

	mu       sync.Mutex
	over     bool
	frozen   chan struct{}     // closed by the thaw; nil: nothing is frozen
	prepared map[string]string // SQL by the statement's name
	portals  map[string]string // SQL by the portal's name
	tx       transaction
	open     *batch   // the client has not ended it
	batches  []*batch // not answered in full, oldest first
}

// batch is what a client sends up to the message after which it waits, and the
// answer to it, which ends with ReadyForQuery.
type batch struct {
	commits   bool // by its end, outside a begin
	failed    bool
	committed bool
	fault     *fault // that strikes the answer
	held      []byte // the answer, as long as there is a fault
}

func newSession(p *Proxy, client, server net.Conn) *session {
	return &session{
		proxy: p, client: client, server: server,
		prepared: map[string]string{}, portals: map[string]string{},
		batches: []*batch{{}}, // the log-in is answered by a ReadyForQuery as well
	}
}

// run forwards both ways until either side has ended.
func (s *session) run() {
	var ways sync.WaitGroup
	ways.Go(s.up)
	ways.Go(s.down)
	ways.Wait()
}

// cut ends both connections.
func (s *session) cut() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	_ = s.client.Close()
	_ = s.server.Close()
	s.thaw()
}

// freeze returns when the session is thawed.
func (s *session) freeze(d time.Duration) {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	frozen := make(chan struct{})
	s.frozen = frozen
	s.mu.Unlock()
	s.proxy.hit(Freeze)
	if d > 0 {
		defer time.AfterFunc(d, s.thaw).Stop()
	}
	<-frozen
}

func (s *session) thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen != nil {
		close(s.frozen)
		s.frozen = nil
	}
}

// awaitThaw returns at once unless the session is frozen.
func (s *session) awaitThaw() {
	s.mu.Lock()
	frozen := s.frozen
	s.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

// up forwards what the client says.
func (s *session) up() {
	defer s.cut()
	r, w := bufio.NewReader(s.client), bufio.NewWriter(s.server)
	first, err := handshake(r, s.client)
	if err != nil {
		return
	}
	_, _ = w.Write(first)
	for {
		if r.Buffered() == 0 && w.Flush() != nil {
			return
		}
		m, err := readMessage(r)
		if err != nil {
			_ = w.Flush()
			return
		}
		if f := s.hear(m); f != nil {
			_ = w.Flush()
			if f.Kind == CutBeforeCommit {
				s.proxy.hit(CutBeforeCommit)
				return
			}
			s.freeze(f.For)
		}
		_, _ = w.Write(m) // an error comes back from Flush
	}
}

// hear takes note of a client's message. If it commits and a fault is to strike
// now, before it is forwarded, the fault is returned; one that is to strike the
// answer is left with the batch.
func (s *session) hear(m message) *fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, commits := s.follow(m)
	if !commits {
		return nil
	}
	sql := s.tx.sql
	s.tx = transaction{}
	if b.fault != nil { // struck once is enough
		return nil
	}
	f := s.proxy.claim(sql)
	if f == nil || f.Kind == CutBeforeCommit || f.Kind == Freeze {
		return f
	}
	b.fault = f
	return nil
}

// follow keeps up with what the client has the server run, and says which batch
// m belongs to and whether m commits. Messages that run nothing have no batch.
func (s *session) follow(m message) (b *batch, commits bool) {
	ends := false
	switch m.kind() {
	case parse:
		t := m.texts(2)
		s.prepared[t[0]] = t[1]
	case bind:
		t := m.texts(2)
		s.portals[t[0]] = s.prepared[t[1]]
	case execute:
		commits = s.tx.run(s.portals[m.texts(1)[0]])
	case simpleQuery:
		commits, ends = s.tx.runAll(m.texts(1)[0]), true
	case syncMessage, functionCall:
		ends = true
	default:
		return nil, false
	}
	b = s.batch()
	if ends {
		b.commits = s.tx.endBatch()
		s.open = nil
		s.proxy.count(func(c *Counts) { c.RoundTrips++ })
	}
	return b, commits || b.commits
}

// batch is the one that the client is sending.
func (s *session) batch() *batch {
	if s.open == nil {
		s.open = new(batch)
		s.batches = append(s.batches, s.open)
	}
	return s.open
}

// down forwards what the server says. When the client has gone it goes on
// reading, until the client's last words have been forwarded too.
func (s *session) down() {
	defer s.cut()
	r, w := bufio.NewReader(s.server), bufio.NewWriter(s.client)
	for {
		m, err := readMessage(r)
		if err != nil {
			_ = w.Flush()
			return
		}
		s.awaitThaw()
		answer, last := s.answer(m)
		_, _ = w.Write(answer)
		if last || r.Buffered() == 0 {
			_ = w.Flush()
		}
		if last {
			return
		}
	}
}

// answer takes note of a server's message and says what the client gets now,
// and whether that is the last it gets.
func (s *session) answer(m message) (out []byte, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.batches) == 0 { // a notice
		return m, false
	}
	b := s.batches[0]
	switch m.kind() {
	case errorResponse:
		b.failed = true
	case commandComplete:
		if strings.EqualFold(m.texts(1)[0], "commit") {
			s.committed(b)
		}
	case readyForQuery:
		if b.commits && !b.failed {
			s.committed(b)
		}
		s.batches = s.batches[1:]
		if status := m[headerSize]; len(s.batches) == 0 && status == 'I' {
			s.tx = transaction{} // it was rolled back, by whomever
		}
	}
	if b.fault == nil {
		return m, false
	}
	b.held = append(b.held, m...)
	if m.kind() != readyForQuery {
		return nil, false
	}
	return s.strike(b)
}

func (s *session) committed(b *batch) {
	b.committed = true
	s.proxy.count(func(c *Counts) { c.Commits++ })
}

// strike does to the answer of b what its fault says.
func (s *session) strike(b *batch) (out []byte, last bool) {
	if !b.committed {
		s.proxy.giveBack(b.fault)
		return b.held, false
	}
	s.proxy.hit(b.fault.Kind)
	if b.fault.Kind == CutMidReply {
		out = half(b.held)
	}
	return out, true
}
