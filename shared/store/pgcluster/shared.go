package pgcluster

import (
	"context"
	"sync"
	"time"
)

// Shared returns the cluster of this process, which the first call starts with
// the zero [Options]. It ends with the process and must not be stopped. If it
// could not be started, every call returns that error.
func Shared() (*Cluster, error) {
	return shared()
}

// A test's context must not end the cluster of all tests, so the start has a separate deadline; a
// loaded machine needs seconds.
var shared = sync.OnceValues(func() (*Cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return Start(ctx, Options{})
})
