// Package cloudsql connects to a Cloud SQL instance as the process's service account: by its private
// address, over TLS, and without a password.
package cloudsql

import (
	"context"
	"net"

	"cloud.google.com/go/cloudsqlconn"

	"github.com/fencepost/fencepost/shared/google"
	"github.com/fencepost/fencepost/shared/store/internal/results"
)

// Instance is one instance. The zero Instance cannot be used; see [New].
type Instance struct {
	name   string
	dialer *google.Client[*cloudsqlconn.Dialer]
}

// New returns the instance with a connection name, project:region:instance, without connecting.
func New(name string) *Instance {
	return &Instance{name, google.NewClient("Cloud SQL", func() (*cloudsqlconn.Dialer, error) {
		// Its certificate is renewed when a connection needs it: between requests there is no processor to
		// renew it.
		return cloudsqlconn.NewDialer(context.Background(), cloudsqlconn.WithIAMAuthN(), cloudsqlconn.WithLazyRefresh(),
			cloudsqlconn.WithDefaultDialOptions(cloudsqlconn.WithPrivateIP()))
	})}
}

// Dial connects to the instance and ignores network and address. It is for
// [github.com/jackc/pgx/v5/pgconn.Config.DialFunc]: the account's own token logs in.
func (i *Instance) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var conn net.Conn
	dialer, err := i.dialer.Get()
	if err == nil {
		conn, err = dialer.Dial(ctx, i.name)
	}
	return conn, results.Wrap(err, "cloud sql instance %s", i.name)
}

// Close releases what Dial holds beside its connections.
func (i *Instance) Close() error { return i.dialer.Close() }
