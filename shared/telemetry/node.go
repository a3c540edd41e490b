package telemetry

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	"cloud.google.com/go/compute/metadata"
)

// nodeIDTimeout bounds the delay of a start by an unavailable metadata server.
const nodeIDTimeout = time.Second

// NodeID returns the name of this instance. On Cloud Run it is the instance id that the platform's logs
// show. Elsewhere, or if the metadata server does not answer within a second, it is random. Call it
// once at the start and keep the result, because a random name differs each time.
func NodeID(ctx context.Context, onCloudRun bool) string {
	if !onCloudRun {
		return rand.Text()
	}
	return instanceID(ctx, nil)
}

// instanceID asks the metadata server through client; nil is the default one.
func instanceID(ctx context.Context, client *http.Client) string {
	ctx, cancel := context.WithTimeout(ctx, nodeIDTimeout)
	defer cancel()
	// InstanceIDWithContext makes the same request behind a lock that ignores the deadline.
	id, err := metadata.NewClient(client).GetWithContext(ctx, "instance/id")
	if err != nil {
		return rand.Text()
	}
	return cmp.Or(strings.TrimSpace(id), rand.Text())
}
