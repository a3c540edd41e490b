// Package cloudtasks emulates Google Cloud Tasks in memory. It serves the real
// gRPC API google.cloud.tasks.v2, so the ordinary client of
// cloud.google.com/go/cloudtasks/apiv2 works against it when it is given the
// endpoint [Server.Addr], no authentication and insecure transport credentials.
//
// Codes, texts and dispatch headers follow recordings of the real service (the
// conformance goldens of github.com/aertje/cloud-tasks-emulator) and the proto
// comments of cloudtasks v1.21.0. What this package lacks is answered
// UNIMPLEMENTED, never ignored: App Engine tasks and routing, OAuth tokens,
// queue-level HTTP targets, list filters, batches, IAM and CMEK.
//
// A 429 or 503 answer slows the whole queue: each halves the rate in use, down
// to an eighth of the configured one, and each 2xx gives a sixteenth back. A
// Retry-After on any failed answer also holds the whole queue back for that
// long, at most ten seconds, and the failed task for all of it.
package cloudtasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	gcp "cloud.google.com/go/cloudtasks/apiv2"
	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// NoWindow, as a window of [Options], frees a name the moment its owner is gone.
const NoWindow time.Duration = -1

// The windows a zero [Options] field stands for, and the longest a task's name
// stays burnt. Source: comments of CreateTaskRequest.task and of DeleteQueue.
const (
	defaultDedupWindow = time.Hour
	maxDedupWindow     = 24 * time.Hour
	defaultTombstone   = 3 * 24 * time.Hour
)

// ErrUnknownAccount is what a [TokenSource] wraps to say that a service account
// does not exist. CreateTask then answers NOT_FOUND, as the service does.
var ErrUnknownAccount = errors.New("unknown service account")

// TokenSource mints the OIDC tokens of tasks that carry an oidc_token.
type TokenSource interface {
	// Token returns a signed token for the account email and the audience. It is
	// asked once when a task is created, where the answer only proves that the
	// account exists, and once for every delivery; an error at delivery fails
	// that attempt. It is called from many goroutines and must return when ctx
	// ends.
	Token(ctx context.Context, email, audience string) (string, error)
}

// Options configure a [Server]. The zero value works.
type Options struct {
	// DedupWindow is how long the name of a finished, deleted or purged task
	// stays burnt: zero means one hour, [NoWindow] not at all, 24 hours at most.
	DedupWindow time.Duration
	// QueueTombstone is how long the name of a deleted queue is refused to
	// CreateQueue: zero means three days, [NoWindow] not at all.
	QueueTombstone time.Duration
	// Tokens mints OIDC tokens. While it is nil CreateTask refuses tasks with an
	// oidc_token.
	Tokens TokenSource
	// Log receives failed attempts at level debug; nil discards them.
	Log *slog.Logger
}

// Server is a running emulator and answers its RPCs. Make one with [Start].
type Server struct {
	cloudtaskspb.UnimplementedCloudTasksServer

	addr   string
	open   context.Context // until Close
	stop   context.CancelFunc
	served chan struct{}

	window, tombstone time.Duration
	tokens            TokenSource
	client            *http.Client
	log               *slog.Logger
	faults            atomic.Pointer[seam]
	work              sync.WaitGroup // dispatchers and deliveries

	mu     sync.RWMutex
	queues map[string]*queue
	blocks burntNames // names of deleted queues
}

// Start listens on a free port of 127.0.0.1 and serves until [Server.Close] is
// called or ctx ends. The error says which option is wrong.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.DedupWindow < NoWindow || o.DedupWindow > maxDedupWindow {
		return nil, fmt.Errorf("DedupWindow is %v: want at most %v, or NoWindow", o.DedupWindow, maxDedupWindow)
	}
	if o.QueueTombstone < NoWindow {
		return nil, fmt.Errorf("QueueTombstone is %v: want a positive duration, or NoWindow", o.QueueTombstone)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for Cloud Tasks: %w", err)
	}
	s := &Server{
		addr:      listener.Addr().String(),
		served:    make(chan struct{}),
		window:    cmp.Or(o.DedupWindow, defaultDedupWindow),
		tombstone: cmp.Or(o.QueueTombstone, defaultTombstone),
		tokens:    o.Tokens,
		client:    newClient(),
		log:       cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		queues:    make(map[string]*queue),
	}
	s.SetFaults(Faults{})
	s.open, s.stop = context.WithCancel(ctx)
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	cloudtaskspb.RegisterCloudTasksServer(server, s)
	context.AfterFunc(s.open, server.Stop)
	go func() {
		defer close(s.served)
		if err := server.Serve(listener); err != nil && s.open.Err() == nil {
			s.log.Error("Cloud Tasks emulator stopped serving", "error", err)
		}
	}()
	return s, nil
}

// Client returns the ordinary client of Cloud Tasks for the emulator. The caller
// closes it.
func (s *Server) Client(ctx context.Context) (*gcp.Client, error) {
	return gcp.NewClient(ctx, option.WithEndpoint(s.addr), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
}

// Addr is the host:port the emulator listens on.
func (s *Server) Addr() string { return s.addr }

// Close stops serving, cancels the deliveries in flight and waits for them. All
// queues and tasks are lost. Calling it again does no harm.
func (s *Server) Close() {
	s.stop()
	<-s.served
	s.work.Wait()
	s.client.CloseIdleConnections()
}

// QueueStats counts what happened to one queue since it was created.
type QueueStats struct {
	// Created counts the tasks CreateTask stored.
	Created int
	// Dispatched counts the requests started towards targets: first attempts,
	// retries, forced runs and the copies made by [Faults].
	Dispatched int
	// Pending is the number of tasks that exist now, those in flight included.
	Pending int
}

// Stats returns the counters of every queue, by its full resource name.
func (s *Server) Stats() map[string]QueueStats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make(map[string]QueueStats, len(s.queues))
	for name, q := range s.queues {
		q.mu.Lock()
		all[name] = QueueStats{Created: q.created, Dispatched: q.dispatched, Pending: len(q.tasks)}
		q.mu.Unlock()
	}
	return all
}
