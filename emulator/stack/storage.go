package stack

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

// markBucket has the mark.
const markBucket = "marks"

// Storage is Cloud Storage, as its client knows it: fake-gcs-server over HTTP.
type Storage struct {
	address string
	down    atomic.Bool
}

// Endpoint is where its API is.
func (s *Storage) Endpoint() string { return "http://" + s.address + "/storage/v1/" }

// Bucket is the one that has the mark.
func (s *Storage) Bucket() string { return markBucket }

// Break has every connection end without an answer, or no more.
func (s *Storage) Break(down bool) { s.down.Store(down) }

// startStorage starts it where the mark is kept.
func (s *Stack) startStorage(context.Context) error {
	if !s.options.Mark {
		return nil
	}
	fake, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true})
	if err != nil {
		return err
	}
	fake.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: markBucket})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Storage = &Storage{address: listener.Addr().String()}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: s.Storage.around(fake.HTTPHandler())}
	go func() { _ = server.Serve(listener) }() // ends with Close
	s.onClose(server.Close)
	return nil
}

func (s *Storage) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.down.Load() {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

// markSettings are none where no mark is kept.
func (s *Stack) markSettings() map[string]string {
	if s.Storage == nil {
		return nil
	}
	return map[string]string{
		"FENCEPOST_AUTHORITY_MARK": "true", "FENCEPOST_AUTHORITY_BUCKET": s.Storage.Bucket(), "FENCEPOST_AUTHORITY_ENDPOINT": s.Storage.Endpoint(),
	}
}
