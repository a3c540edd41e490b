package store_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// A custom dialer connects to its own database, whatever the URL's host. No process resolves
// that host.
func TestDialInPlaceOfTheHost(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	at, err := pgconn.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	network, address := pgconn.NetworkAddress(at.Host, at.Port)
	var dialled atomic.Int64
	options := storetest.Options("host=nowhere.invalid user="+at.User+" password="+at.Password+" dbname="+at.Database+" sslmode=disable", storetest.Rules)
	options.Dial = func(ctx context.Context, _, asked string) (net.Conn, error) {
		dialled.Add(1)
		if !strings.HasPrefix(asked, "nowhere.invalid:") {
			t.Errorf("dialled: got %s, want the URL's host as it stands", asked)
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	s, err := store.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Ping(t.Context()); err != nil || dialled.Load() == 0 {
		t.Errorf("ping: got %v after %d dials, want it answered by way of the dialer", err, dialled.Load())
	}
}
