package telemetry

import (
	"context"
	"log/slog"
	"sync"
)

// Meter counts the cost of one invocation. Its methods can be called concurrently, and on a nil Meter,
// where they count nothing: callers need not know whether there is a meter.
type Meter struct {
	mu   sync.Mutex
	cost Cost
}

// change calls f with the counts so far.
func (m *Meter) change(f func(*Cost)) {
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		f(&m.cost)
	}
}

// SQL counts one round trip to Postgres with so many statements, of which so many were commits. A
// statement outside a transaction commits itself.
func (m *Meter) SQL(statements, commits int) {
	m.change(func(c *Cost) {
		c.SQLRoundTrips++
		c.SQLStatements += int64(statements)
		c.Commits += int64(commits)
	})
}

// RPC counts one HTTP round trip to a chain's node. A JSON-RPC batch is one.
func (m *Meter) RPC() { m.change(func(c *Cost) { c.RPCRoundTrips++ }) }

// Tasks counts n enqueued tasks.
func (m *Meter) Tasks(n int) { m.change(func(c *Cost) { c.Tasks += int64(n) }) }

// Cost holds the counts of a [Meter].
type Cost struct {
	SQLRoundTrips, SQLStatements, Commits, RPCRoundTrips, Tasks int64
}

// Cost returns the counts so far; the zero Cost for a nil Meter.
func (m *Meter) Cost() (counts Cost) {
	m.change(func(c *Cost) { counts = *c })
	return counts
}

func (c Cost) attrs() []slog.Attr {
	return []slog.Attr{
		slog.Int64("sqlRoundTrips", c.SQLRoundTrips), slog.Int64("sqlStatements", c.SQLStatements),
		slog.Int64("commits", c.Commits), slog.Int64("rpcRoundTrips", c.RPCRoundTrips), slog.Int64("tasks", c.Tasks),
	}
}

type meterKey struct{}

// WithMeter returns ctx with a new [Meter], which replaces any other.
func WithMeter(ctx context.Context) context.Context {
	return context.WithValue(ctx, meterKey{}, new(Meter))
}

// MeterFrom returns the meter in ctx; nil, which can be used, if there is none.
func MeterFrom(ctx context.Context) *Meter {
	m, _ := ctx.Value(meterKey{}).(*Meter)
	return m
}
