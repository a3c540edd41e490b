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

// nodeIDTimeout bounds how long an unknown name may delay a start.
const nodeIDTimeout = time.Second

// NodeID names the instance that this process is. On Cloud Run it is the
// instance id that the platform's own logs show; elsewhere, or when the
// metadata server does not tell it within a second, it is random. Call it once,
// when the process starts, and keep the answer: a random name is a new one each
// time.
func NodeID(ctx context.Context, onCloudRun bool) string {
	if !onCloudRun {
		return rand.Text()
	}
	return instanceID(ctx, nil)
}

// instanceID asks the metadata server by way of client; nil is the usual one.
func instanceID(ctx context.Context, client *http.Client) string {
	ctx, cancel := context.WithTimeout(ctx, nodeIDTimeout)
	defer cancel()
	// Not InstanceIDWithContext: it is this very question behind a lock that
	// ignores the deadline.
	id, err := metadata.NewClient(client).GetWithContext(ctx, "instance/id")
	if err != nil {
		return rand.Text()
	}
	return cmp.Or(strings.TrimSpace(id), rand.Text())
}
