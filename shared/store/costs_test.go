package store_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Each act of a lease session, and a create, is one round trip once its statements are
// prepared. Both the meter and the wire show it.
func TestActsAreOneRoundTripEach(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1000)
	through, syncs := proxied(t, db.URL)
	options := storetest.Options(through, storetest.Rules)
	options.MaxConns = 1
	s, err := store.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	var w txmanager.SubmitterState
	acts := []struct {
		name string
		do   func(context.Context) error
		want telemetry.Cost
	}{
		{"create", func(ctx context.Context) error {
			_, err := s.Create(ctx, intent(alice, rowsSoFar(t, db)), 1000)
			return err
		}, telemetry.Cost{SQLRoundTrips: 1, SQLStatements: 3, Commits: 1}},
		{"take", func(ctx context.Context) error {
			taken, err := s.Acquire(ctx, alice, "a/1", true)
			w = taken.State
			return err
		}, telemetry.Cost{SQLRoundTrips: 1, SQLStatements: 4, Commits: 1}},
		{"renew", func(ctx context.Context) (err error) {
			w.Lease, err = s.Renew(ctx, w.Lease)
			return err
		}, telemetry.Cost{SQLRoundTrips: 1, SQLStatements: 1, Commits: 1}},
		{"go round again", func(ctx context.Context) (err error) {
			w, err = s.BeginIteration(ctx, w.Lease, true)
			return err
		}, telemetry.Cost{SQLRoundTrips: 1, SQLStatements: 4, Commits: 1}},
		{"write", func(ctx context.Context) error {
			_, err := s.Commit(ctx, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), Transitions: []txmanager.Transition{remark(w.Queue[0], "")}, LeaseEnd: txmanager.ReleaseUnlessRerun})
			return err
		}, telemetry.Cost{SQLRoundTrips: 1, SQLStatements: 6, Commits: 1}},
	}
	for _, warm := range []bool{false, true} {
		for _, act := range acts {
			before := syncs.Load()
			ctx := telemetry.WithMeter(t.Context())
			if err := act.do(ctx); err != nil {
				t.Fatalf("%s: %v", act.name, err)
			}
			if !warm {
				continue
			}
			if diff := cmp.Diff(act.want, telemetry.MeterFrom(ctx).Cost()); diff != "" {
				t.Errorf("%s: cost by the meter (-want +got):\n%s", act.name, diff)
			}
			if got := syncs.Load() - before; got != 1 {
				t.Errorf("%s: waited for the server %d times, want once", act.name, got)
			}
		}
	}
}

// rowsSoFar names each request anew.
func rowsSoFar(t *testing.T, db storetest.Bundle) string {
	return value[string](t, db, `select 'r' || count(*) from managed_tx`)
}

// proxied is an address that leads to the same database, and a count of the
// messages sent there after which a client waits for the server: Sync and
// simple Query. Source: https://www.postgresql.org/docs/15/protocol-message-formats.html
func proxied(t *testing.T, address string) (through string, syncs *atomic.Int64) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	syncs = new(atomic.Int64)
	server := u.Host
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp4", server)
			if err != nil {
				_ = client.Close()
				return
			}
			go func() { _, _ = io.Copy(client, upstream); _ = client.Close() }()
			go func() { countSyncs(upstream, client, syncs); _ = upstream.Close() }()
		}
	}()
	u.Host = listener.Addr().String()
	return u.String(), syncs
}

// countSyncs copies a client's messages until the client ends. The first has
// no type.
func countSyncs(to io.Writer, from io.Reader, syncs *atomic.Int64) {
	header := make([]byte, 4)
	for {
		if _, err := io.ReadFull(from, header); err != nil {
			return
		}
		length := int64(binary.BigEndian.Uint32(header[len(header)-4:])) - 4
		if _, err := to.Write(header); err != nil {
			return
		}
		if _, err := io.CopyN(to, from, length); err != nil {
			return
		}
		if kind := header[0]; len(header) == 5 && (kind == 'S' || kind == 'Q') {
			syncs.Add(1)
		}
		header = make([]byte, 5)
	}
}
