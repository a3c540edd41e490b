package pgproxy

import (
	"bufio"
	"net"
	"strings"
	"sync"
	"time"
)

// session is one client's connection with its connection to the server.
type session struct {
	proxy          *Proxy
	client, server net.Conn

	mu       sync.Mutex
	over     bool
	frozen   chan struct{}     // closed by the thaw; nil: nothing is frozen
	prepared map[string]string // SQL by the statement's name
	portals  map[string]string // SQL by the portal's name
	tx       transaction
	open     *batch   // the batch that the client is sending
	batches  []*batch // without a complete answer, oldest first
}

// batch is the client's messages up to the one after which it waits, with the answer up to
// ReadyForQuery.
type batch struct {
	commits   bool // its end commits, outside a begin
	failed    bool
	committed bool
	fault     *fault // strikes the answer
	held      []byte // the answer so far, if there is a fault
}

func newSession(p *Proxy, client, server net.Conn) *session {
	return &session{
		proxy: p, client: client, server: server,
		prepared: map[string]string{}, portals: map[string]string{},
		batches: []*batch{{}}, // the login is answered by a ReadyForQuery too
	}
}

// run forwards in both directions until either side has ended.
func (s *session) run() {
	var ways sync.WaitGroup
	ways.Go(s.up)
	ways.Go(s.down)
	ways.Wait()
}

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
		if f := s.observeClient(m); f != nil {
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

// observeClient records a client's message. If the message commits, it returns a fault that strikes before
// the message is forwarded. A fault that strikes the answer is stored in the batch.
func (s *session) observeClient(m message) *fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, commits := s.follow(m)
	if !commits {
		return nil
	}
	sql := s.tx.sql
	s.tx = transaction{}
	if b.fault != nil { // it already has a fault
		return nil
	}
	f := s.proxy.claim(sql)
	if f == nil || f.Kind == CutBeforeCommit || f.Kind == Freeze {
		return f
	}
	b.fault = f
	return nil
}

// follow tracks the statements that the client runs. It returns the batch of m, and whether m commits.
// Messages that run nothing have no batch.
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
	b = s.currentBatch()
	if ends {
		b.commits = s.tx.endBatch()
		s.open = nil
		s.proxy.count(func(c *Counts) { c.RoundTrips++ })
	}
	return b, commits || b.commits
}

func (s *session) currentBatch() *batch {
	if s.open == nil {
		s.open = new(batch)
		s.batches = append(s.batches, s.open)
	}
	return s.open
}

// down forwards the server's messages. After the client's end it keeps reading until the client's last
// messages have been forwarded too.
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

// answer records a server's message. It returns the bytes that the client gets now, and whether they are
// the last.
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
			s.tx = transaction{} // the transaction was rolled back
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

// strike applies the fault of b to its answer.
func (s *session) strike(b *batch) (out []byte, last bool) {
	if !b.committed {
		s.proxy.unclaim(b.fault)
		return b.held, false
	}
	s.proxy.hit(b.fault.Kind)
	if b.fault.Kind == CutMidReply {
		out = half(b.held)
	}
	return out, true
}
