// Package tasks names and creates Cloud Tasks; it is the only user of its
// client. A task says no more than "look at this submitter", or "at this transfer":
// what is to be done is read from the database, so that a task that comes twice,
// late, or not at all changes only the time of the next step.
package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	cloudtasks "cloud.google.com/go/cloudtasks/apiv2"
	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/telemetry"
)

// Options say where the queues are and what their tasks call.
type Options struct {
	Parent           string // projects/P/locations/L
	Endpoint         string // host:port of a local service without TLS; "": Google's
	QueuePrefix      string
	QueueShards      int           // queues over which one function's tasks are spread by submitter or transfer
	TargetURL        string        // base URL of the internal functions
	ServiceAccount   string        // whom tasks call as
	Audience         string        // whom their tokens are made for
	DispatchDeadline time.Duration // how long an invocation may take

	// Epoch is the database's mark in every name, so that a database made anew
	// never meets names that its predecessor used up.
	Epoch func(context.Context) (string, error)

	// NameEpoch is a submitter's own mark beside it, drawn anew where names may be used
	// up; "": it has none. nil: no submitter has one.
	NameEpoch func(nonce.Submitter) string
}

// createWithin bounds one CreateTask. The service refuses deadlines over 30 s.
const createWithin = 5 * time.Second

// Tasks makes tasks. Its methods may be called by many goroutines.
type Tasks struct {
	options Options
	made    recent

	connecting sync.Mutex
	client     *cloudtasks.Client
}

// New makes a maker of tasks, which connects when it is first used.
func New(o Options) *Tasks { return &Tasks{options: o} }

// Close ends the connection, if there is one.
func (t *Tasks) Close() error {
	t.connecting.Lock()
	defer t.connecting.Unlock()
	if t.client == nil {
		return nil
	}
	return t.client.Close()
}

// Advance implements [nonce.Waker]. The task is named by the token in force, so
// that a burst of creates costs one: the tenure that it begins has another.
func (t *Tasks) Advance(ctx context.Context, s nonce.Submitter, token int64) error {
	return t.AdvanceAt(ctx, s, token, time.Time{})
}

// AdvanceAt implements [nonce.Waker]. It is the task of Advance: who asks for the
// one while the other waits finds it made.
func (t *Tasks) AdvanceAt(ctx context.Context, s nonce.Submitter, token int64, at time.Time) error {
	return t.create(ctx, nonce.KindAdvance, s, "a-"+strconv.FormatInt(token, 10), at)
}

// Rescue implements [nonce.Waker]. The task is due when the holder could be
// waited out, and named by the token and the expiry that were seen: another
// expiry is another name.
func (t *Tasks) Rescue(ctx context.Context, s nonce.Submitter, met nonce.Taken) error {
	suffix := fmt.Sprintf("d-%d-%d", met.Token, met.ExpiresAt.UnixMicro())
	return t.create(ctx, nonce.KindAdvance, s, suffix, met.FreeAt.Add(rescueMargin))
}

// rescueMargin keeps a rescue from coming before the skew allowance is over by the
// database's clock: it would be told to wait, and could not be named again.
const rescueMargin = time.Second

// Poll implements [nonce.Waker]. The task is named by the second it is due, so
// that two chains of polls become one.
func (t *Tasks) Poll(ctx context.Context, s nonce.Submitter, kind nonce.Kind, at time.Time) error {
	return t.create(ctx, kind, s, fmt.Sprintf("%s-%d", kind, at.Unix()), at)
}

// Sweep asks for a look at s on behalf of a sweep that began at this time, by
// whose minute it is named. The name never holds the token: the task of that
// name may be lost, and its name burnt. made says that it was not there already.
func (t *Tasks) Sweep(ctx context.Context, s nonce.Submitter, kind nonce.Kind, began time.Time) (made bool, err error) {
	return t.make(ctx, kind, s, fmt.Sprintf("s-%d", began.Unix()/60), time.Time{})
}

// Queue is the id of the queue that serves s by the function of kind.
func (o Options) Queue(kind nonce.Kind, s nonce.Submitter) string {
	return o.queue(string(kind), s.Digest())
}

// queue is the id of the queue of the function for what has the digest.
func (o Options) queue(function, digest string) string {
	shard := uint64(0)
	if o.QueueShards > 1 {
		first, _ := strconv.ParseUint(digest[:8], 16, 64)
		shard = first % uint64(o.QueueShards)
	}
	return fmt.Sprintf("%s-%s-%d", o.QueuePrefix, function, shard)
}

// create makes the task of that name. A name that exists, or existed lately, is
// as good as made.
func (t *Tasks) create(ctx context.Context, kind nonce.Kind, s nonce.Submitter, suffix string, at time.Time) error {
	_, err := t.make(ctx, kind, s, suffix, at)
	return err
}

// make says whether the name was new.
func (t *Tasks) make(ctx context.Context, kind nonce.Kind, s nonce.Submitter, suffix string, at time.Time) (made bool, err error) {
	if t.options.NameEpoch != nil {
		if own := t.options.NameEpoch(s); own != "" {
			suffix = own + "-" + suffix
		}
	}
	return t.add(ctx, errand{
		function: string(kind), digest: s.Digest(), suffix: suffix, body: map[string]any{"submitter": string(s)}, at: at,
	})
}

// errand is a task to be made.
type errand struct {
	function string         // that it calls, and whose queue it is in
	digest   string         // of what it is about: names begin with it, since the service dislikes sequences
	suffix   string         // the name's end
	body     map[string]any // JSON
	at       time.Time      // when it is due; zero: now
}

// add says whether the name was new.
func (t *Tasks) add(ctx context.Context, e errand) (made bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, createWithin)
	defer cancel()
	client, epoch, err := t.connect(ctx)
	if err != nil {
		return false, err
	}
	queue := t.options.Parent + "/queues/" + t.options.queue(e.function, e.digest)
	name := queue + "/tasks/" + e.digest + "-" + epoch + "-" + e.suffix
	if t.made.has(name) {
		return false, nil
	}
	task := t.task(name, e)
	if trace := telemetry.Traceparent(ctx); trace != "" {
		task.GetHttpRequest().Headers["traceparent"] = trace
	}
	calling, end := telemetry.Begin(ctx, "CreateTask "+e.function)
	_, err = client.CreateTask(calling, &cloudtaskspb.CreateTaskRequest{Parent: queue, Task: task})
	end(err)
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return false, fmt.Errorf("create task %s: %w", name, err)
	}
	telemetry.MeterFrom(ctx).Tasks(1)
	t.made.add(name)
	return err == nil, nil
}

func (t *Tasks) task(name string, e errand) *cloudtaskspb.Task {
	body, _ := json.Marshal(e.body) // strings and truths: cannot fail
	task := &cloudtaskspb.Task{
		Name:             name,
		DispatchDeadline: durationpb.New(t.options.DispatchDeadline),
		MessageType: &cloudtaskspb.Task_HttpRequest{HttpRequest: &cloudtaskspb.HttpRequest{
			Url:        t.options.TargetURL + "/internal/" + e.function,
			HttpMethod: cloudtaskspb.HttpMethod_POST,
			Headers:    map[string]string{"Content-Type": "application/json"},
			Body:       body,
			AuthorizationHeader: &cloudtaskspb.HttpRequest_OidcToken{OidcToken: &cloudtaskspb.OidcToken{
				ServiceAccountEmail: t.options.ServiceAccount, Audience: t.options.Audience,
			}},
		}},
	}
	if !e.at.IsZero() {
		task.ScheduleTime = timestamppb.New(e.at)
	}
	return task
}

// connect opens the client once; a failure is tried again by the next call.
func (t *Tasks) connect(ctx context.Context) (*cloudtasks.Client, string, error) {
	epoch, err := t.options.Epoch(ctx)
	if err != nil {
		return nil, "", err
	}
	t.connecting.Lock()
	defer t.connecting.Unlock()
	if t.client == nil {
		client, err := dial(t.options.Endpoint)
		if err != nil {
			return nil, "", err
		}
		t.client = client
	}
	return t.client, epoch, nil
}

// reconnecting bounds how long Cloud Tasks may be there again before it is noticed;
// gRPC's own bound is two minutes, in which no task could be made.
var reconnecting = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
	MinConnectTimeout: 5 * time.Second,
}

// dial outlives the request that happens to be first: hence no context of its.
func dial(endpoint string) (*cloudtasks.Client, error) {
	options := []option.ClientOption{option.WithTelemetryDisabled(), option.WithGRPCDialOption(grpc.WithConnectParams(reconnecting))}
	if endpoint != "" {
		options = append(options, option.WithEndpoint(endpoint), option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	}
	client, err := cloudtasks.NewClient(context.Background(), options...)
	if err != nil {
		return nil, errors.Join(errors.New("connect to Cloud Tasks"), err)
	}
	return client, nil
}

// recent remembers names that were made, or found made: making one again is
// never needed. Forgetting costs a call and nothing else.
type recent struct {
	mu    sync.Mutex
	names map[string]struct{}
}

const recentNames = 10_000

func (r *recent) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.names[name]
	return ok
}

func (r *recent) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names == nil || len(r.names) >= recentNames {
		r.names = make(map[string]struct{})
	}
	r.names[name] = struct{}{}
}
