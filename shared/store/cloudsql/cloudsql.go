// Package cloudsql connects to a Cloud SQL instance as the process's service account: by its private
// address, over TLS, and without a password.
package cloudsql

import (
	"context"
	"net"
	"sync"

	"cloud.google.com/go/cloudsqlconn"

	"github.com/fencepost/fencepost/shared/store/internal/results"
)

// Instance is one instance. The zero Instance cannot be used; see [New].
type Instance struct {
	name string

	mu     sync.Mutex
	dialer *cloudsqlconn.Dialer // nil until its first use
}

// New returns the instance with a connection name, project:region:instance, without connecting.
func New(name string) *Instance { return &Instance{name: name} }

// Dial connects to the instance and ignores network and address. It is for
// [github.com/jackc/pgx/v5/pgconn.Config.DialFunc]: the account's own token logs in.
func (i *Instance) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var conn net.Conn
	dialer, err := i.open(ctx)
	if err == nil {
		conn, err = dialer.Dial(ctx, i.name)
	}
	return conn, results.Wrap(err, "cloud sql instance %s", i.name)
}

// open makes the dialer once. After a failure the next dial tries again.
func (i *Instance) open(ctx context.Context) (*cloudsqlconn.Dialer, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.dialer != nil {
		return i.dialer, nil
	}
	// Its certificate is renewed when a connection needs it: between requests there is no processor to
	// renew it.
	dialer, err := cloudsqlconn.NewDialer(context.WithoutCancel(ctx), cloudsqlconn.WithIAMAuthN(), cloudsqlconn.WithLazyRefresh(),
		cloudsqlconn.WithDefaultDialOptions(cloudsqlconn.WithPrivateIP()))
	if err == nil {
		i.dialer = dialer
	}
	return dialer, err
}

// Close releases what Dial holds beside its connections.
func (i *Instance) Close() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.dialer == nil {
		return nil
	}
	return i.dialer.Close()
}
