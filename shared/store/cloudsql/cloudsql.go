// Package cloudsql reaches a Cloud SQL instance as the service account that the
// process runs as: by its private address, over TLS, and without a password.
package cloudsql

import (
	"context"
	"fmt"
	"net"
	"sync"

	"cloud.google.com/go/cloudsqlconn"
)

// Instance is one instance. The zero Instance is of no use; see [New].
type Instance struct {
	name string

	mu     sync.Mutex
	dialer *cloudsqlconn.Dialer // nil until it is first used
}

// New names an instance by its connection name, project:region:instance. It
// connects to nothing yet.
func New(name string) *Instance { return &Instance{name: name} }

// Dial connects to the instance, whatever network and address say. It is for
// [github.com/jackc/pgx/v5/pgconn.Config.DialFunc]: the account's own token logs it in.
func (i *Instance) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	dialer, err := i.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("cloud sql instance %s: %w", i.name, err)
	}
	conn, err := dialer.Dial(ctx, i.name)
	if err != nil {
		return nil, fmt.Errorf("cloud sql instance %s: %w", i.name, err)
	}
	return conn, nil
}

// open makes the dialer once. A failure is not remembered: the next dial tries again.
func (i *Instance) open(ctx context.Context) (*cloudsqlconn.Dialer, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.dialer != nil {
		return i.dialer, nil
	}
	// Its certificate is renewed when a connection wants it: between requests there is
	// no processor to renew it with.
	dialer, err := cloudsqlconn.NewDialer(context.WithoutCancel(ctx), cloudsqlconn.WithIAMAuthN(), cloudsqlconn.WithLazyRefresh(),
		cloudsqlconn.WithDefaultDialOptions(cloudsqlconn.WithPrivateIP()))
	if err == nil {
		i.dialer = dialer
	}
	return dialer, err
}

// Close gives back what Dial holds beside its connections.
func (i *Instance) Close() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.dialer == nil {
		return nil
	}
	return i.dialer.Close()
}
