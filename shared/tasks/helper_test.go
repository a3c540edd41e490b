package tasks_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/tasks"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const (
	alice = txmanager.Submitter("eip155:1337:0x00000000000000000000000000000000000a11ce")
	bob   = txmanager.Submitter("eip155:1337:0x0000000000000000000000000000000000000b0b")
)

// service is a Cloud Tasks server: it accepts each task name once and runs nothing.
type service struct {
	cloudtaskspb.UnimplementedCloudTasksServer
	address string

	mu       sync.Mutex
	burnt    map[string]bool
	accepted []*cloudtaskspb.Task
}

// CreateTask accepts a task with a new name.
func (s *service) CreateTask(_ context.Context, r *cloudtaskspb.CreateTaskRequest) (*cloudtaskspb.Task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.burnt[r.Task.Name] {
		return nil, status.Error(codes.AlreadyExists, "Requested entity already exists")
	}
	s.burnt[r.Task.Name] = true
	s.accepted = append(s.accepted, r.Task)
	return r.Task, nil
}

// newService serves until the test ends.
func newService(t *testing.T) *service {
	t.Helper()
	listener := check.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	s := &service{address: listener.Addr().String(), burnt: map[string]bool{}}
	server := grpc.NewServer()
	cloudtaskspb.RegisterCloudTasksServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return s
}

// names returns the accepted names in order, without their queues.
func (s *service) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []string{}
	for _, task := range s.accepted {
		list = append(list, task.Name[strings.LastIndexByte(task.Name, '/')+1:])
	}
	return list
}

// process returns the tasks of another process, which does not know the names that others have made.
func (s *service) process(t *testing.T, epoch func(context.Context) (string, error)) *tasks.Tasks {
	t.Helper()
	made := tasks.New(tasks.Options{
		Parent: "projects/p/locations/l", Endpoint: s.address, QueuePrefix: "fencepost", QueueShards: 4,
		TargetURL: "http://127.0.0.1:1", DispatchDeadline: time.Minute, Epoch: epoch,
	})
	t.Cleanup(func() { _ = made.Close() })
	return made
}

// always returns a fixed epoch without a database.
func always(epoch string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return epoch, nil }
}

// anew returns a database that was migrated for this test alone: clones of one template would share its
// epoch.
func anew(t *testing.T) *store.Store {
	t.Helper()
	cluster := check.Value(pgcluster.Shared())(t)
	name, drop, err := cluster.Clone(t.Context(), "template1")
	check.OK(t)(err)
	t.Cleanup(drop)
	check.OK(t)(migrations.Up(t.Context(), cluster.URL(name), slog.New(slog.NewTextHandler(io.Discard, nil))))
	s := check.Value(store.Open(t.Context(), storetest.Options(cluster.URL(name), storetest.Rules)))(t)
	t.Cleanup(s.Close)
	return s
}

// done fails the test if a task could not be made.
func done(t *testing.T, errs ...error) {
	t.Helper()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		t.Fatalf("make a task: %v", errs[i])
	}
}
