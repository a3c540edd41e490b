package stack

import (
	"context"
	"maps"
	"net/http"
	"sync/atomic"

	"github.com/fsouza/fake-gcs-server/fakestorage"

	"github.com/fencepost/fencepost/emulator/stack/loopback"
	"github.com/fencepost/fencepost/emulator/stack/steps"
)

const markBucket = "marks"

// Storage is Cloud Storage: fake-gcs-server over HTTP.
type Storage struct {
	server *loopback.Server
	down   atomic.Bool
}

// Endpoint is the address of its API.
func (s *Storage) Endpoint() string { return s.server.URL() + "/storage/v1/" }

// Bucket is the bucket with the mark.
func (s *Storage) Bucket() string { return markBucket }

// Break makes every connection end without an answer, or ends that.
func (s *Storage) Break(down bool) { s.down.Store(down) }

// startStorage starts it if the stack keeps a mark.
func (s *Stack) startStorage(context.Context) {
	if !s.options.Mark {
		return
	}
	fake := steps.Value(fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true}))
	fake.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: markBucket})
	handler := fake.HTTPHandler()
	s.Storage = &Storage{}
	s.Storage.server = steps.Value(loopback.Serve("", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Storage.down.Load() {
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	})))
	s.OnClose(s.Storage.server.Close)
	maps.Copy(s.settings, map[string]string{
		"FENCEPOST_MARK_BUCKET": s.Storage.Bucket(), "FENCEPOST_MARK_ENDPOINT": s.Storage.Endpoint(),
	})
}
