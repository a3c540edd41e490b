// Package tasks names and creates Cloud Tasks; it is the only user of their client. A task only names a
// submitter or a transfer. The work to do is read from the database, so that a repeated, late or lost
// task changes only the time of the next step.
package tasks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	cloudtasks "cloud.google.com/go/cloudtasks/apiv2"
	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fencepost/fencepost/shared/events"
	"github.com/fencepost/fencepost/shared/google"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Options define the queues and the targets of their tasks.
type Options struct {
	Parent           string // projects/P/locations/L
	Endpoint         string // host:port of a local service without TLS; "": Google's
	QueuePrefix      string
	QueueShards      int           // queues over which one function's tasks are distributed by submitter or transfer
	TargetURL        string        // base URL of the internal functions
	ServiceAccount   string        // the account that tasks call as
	Audience         string        // the audience of their tokens
	DispatchDeadline time.Duration // the maximum duration of an invocation

	// Epoch returns the database's mark in each name, so that a new database never uses names of its
	// predecessor.
	Epoch func(context.Context) (string, error)

	// NameEpoch returns a submitter's own mark, which changes when names may be used up; "": it has
	// none. nil: no submitter has one.
	NameEpoch func(txmanager.Submitter) string
}

// createWithin bounds one CreateTask. The service refuses deadlines over 30 s.
const createWithin = 5 * time.Second

// recentNames is about how many names of tasks a process remembers.
const recentNames = 10_000

// Tasks creates tasks. Its methods can be called concurrently.
type Tasks struct {
	options Options
	client  *google.Client[*cloudtasks.Client]

	// made has the names of tasks that were made, or found made: making one again is never needed. Forgetting them
	// costs calls and nothing else.
	made      sync.Map
	madeCount atomic.Int64
}

// New returns a creator of tasks that connects at the first use.
func New(o Options) *Tasks {
	return &Tasks{options: o, client: google.NewClient("Cloud Tasks", func() (*cloudtasks.Client, error) {
		return cloudtasks.NewClient(context.Background(), append(google.Options(o.Endpoint), google.ReconnectSoon)...)
	})}
}

// Close closes the connection, if there is one.
func (t *Tasks) Close() error { return t.client.Close() }

// EnqueueAdvance implements [txmanager.TaskEnqueuer]. The task is named by the current token, so that a burst of creates
// makes one task: the lease session that it begins has another token.
func (t *Tasks) EnqueueAdvance(ctx context.Context, s txmanager.Submitter, token int64) error {
	return t.EnqueueAdvanceAt(ctx, s, token, time.Time{})
}

// EnqueueAdvanceAt implements [txmanager.TaskEnqueuer]. It uses the name of Advance, so a second call while the first
// task waits makes none.
func (t *Tasks) EnqueueAdvanceAt(ctx context.Context, s txmanager.Submitter, token int64, at time.Time) error {
	return t.create(ctx, t.ofSubmitter(s, txmanager.KindAdvance, "a-"+strconv.FormatInt(token, 10), at))
}

// EnqueueTakeover implements [txmanager.TaskEnqueuer]. The task is due when the holder's lease can be taken over. It is
// named by the token and the expiry that were read: another expiry makes another name.
func (t *Tasks) EnqueueTakeover(ctx context.Context, s txmanager.Submitter, met txmanager.AcquireResult) error {
	suffix := fmt.Sprintf("d-%d-%d", met.Token, met.ExpiresAt.UnixMicro())
	return t.create(ctx, t.ofSubmitter(s, txmanager.KindAdvance, suffix, met.TakeoverAt.Add(rescueMargin)))
}

// rescueMargin keeps a rescue from running before the skew allowance is over by the database's clock:
// it would find the lease held, and its name could not be used again.
const rescueMargin = time.Second

// EnqueuePoll implements [txmanager.TaskEnqueuer]. The task is named by the second of its due time, so that two chains of
// polls become one.
func (t *Tasks) EnqueuePoll(ctx context.Context, s txmanager.Submitter, kind txmanager.Kind, at time.Time) error {
	return t.create(ctx, t.ofSubmitter(s, kind, fmt.Sprintf("%s-%d", kind, at.Unix()), at))
}

// Sweep enqueues a task for s on behalf of a sweep that began at this time. The task is named by that
// minute and never by the token. The task with the token's name may be lost, and its name used up. The
// result made reports whether the task is new.
func (t *Tasks) Sweep(ctx context.Context, s txmanager.Submitter, kind txmanager.Kind, began time.Time) (made bool, err error) {
	return t.add(ctx, t.ofSubmitter(s, kind, fmt.Sprintf("s-%d", began.Unix()/60), time.Time{}))
}

// ofSubmitter is a task for s. The submitter's own mark, if it has one, is in the name.
func (t *Tasks) ofSubmitter(s txmanager.Submitter, kind txmanager.Kind, suffix string, at time.Time) errand {
	if t.options.NameEpoch != nil {
		if own := t.options.NameEpoch(s); own != "" {
			suffix = own + "-" + suffix
		}
	}
	return errand{function: string(kind), digest: s.Digest(), suffix: suffix, body: map[string]any{"submitter": string(s)}, at: at}
}

// errand is a task to be created.
type errand struct {
	function string         // that it calls; its queue belongs to it
	digest   string         // of its subject: names begin with it, since sequential names are slow in Cloud Tasks
	suffix   string         // the name's end
	body     map[string]any // JSON
	at       time.Time      // when it is due; zero: now
}

// create makes the task. A name that exists, or existed lately, counts as made.
func (t *Tasks) create(ctx context.Context, e errand) error {
	_, err := t.add(ctx, e)
	return err
}

// add makes the task, and reports whether the name was new.
func (t *Tasks) add(ctx context.Context, e errand) (made bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, createWithin)
	defer cancel()
	epoch, err := t.options.Epoch(ctx)
	if err != nil {
		return false, err
	}
	client, err := t.client.Get()
	if err != nil {
		return false, err
	}
	shard, _ := strconv.ParseUint(e.digest[:8], 16, 64)
	queue := fmt.Sprintf("%s/queues/%s-%s-%d", t.options.Parent, t.options.QueuePrefix, e.function, shard%uint64(max(t.options.QueueShards, 1)))
	name := queue + "/tasks/" + e.digest + "-" + epoch + "-" + e.suffix
	if _, known := t.made.Load(name); known {
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
	if t.madeCount.Add(1) > recentNames {
		t.made.Clear()
		t.madeCount.Store(0)
	}
	t.made.Store(name, nil)
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

// Publish is the function that delivers events.
const Publish = "publish"

// ofStream is a task for a delivery queue.
func ofStream(s events.DeliveryQueue, suffix string, at time.Time) errand {
	endpoint := digestOf(s.Endpoint)[:16] // its name may have characters that a task's name must not have
	return errand{
		function: Publish, digest: s.Submitter.Digest(), suffix: endpoint + "-" + suffix,
		body: map[string]any{"submitter": string(s.Submitter), "endpoint": s.Endpoint}, at: at,
	}
}

// Publish implements [events.TaskEnqueuer]. The task is due at the end of that second and named by it, so that
// calls within one second make one task.
func (t *Tasks) Publish(ctx context.Context, s events.DeliveryQueue, at time.Time) error {
	at = at.Truncate(time.Second).Add(time.Second)
	return t.create(ctx, ofStream(s, fmt.Sprintf("p-%d", at.Unix()), at))
}

// RescuePublish implements [events.TaskEnqueuer], as EnqueueTakeover does for submitters.
func (t *Tasks) RescuePublish(ctx context.Context, s events.DeliveryQueue, met events.AcquireResult) error {
	suffix := fmt.Sprintf("d-%d-%d", met.Token, met.ExpiresAt.UnixMicro())
	return t.create(ctx, ofStream(s, suffix, met.FreeAt.Add(rescueMargin)))
}

// PublishTest enqueues a task that sends an operator's test event to the endpoint.
func (t *Tasks) PublishTest(ctx context.Context, endpoint string, test int64) error {
	return t.create(ctx, errand{
		function: Publish, digest: digestOf(endpoint), suffix: fmt.Sprintf("t-%d", test), body: map[string]any{"endpoint": endpoint, "test": test},
	})
}

// SweepPublish enqueues a task for a delivery queue on behalf of a sweep that began at this time. The
// task is named by that minute. made reports whether it is new.
func (t *Tasks) SweepPublish(ctx context.Context, s events.DeliveryQueue, began time.Time) (made bool, err error) {
	return t.add(ctx, ofStream(s, fmt.Sprintf("s-%d", began.Unix()/60), time.Time{}))
}

// Transfer is the function that transfers' tasks call, and the middle part of their queues' ids.
const Transfer = "transfer"

// Step enqueues the next step of a transfer at the given time. The task is named by the transfer and
// its number of postponed attempts, so that calls with the same plan make one task.
func (t *Tasks) Step(ctx context.Context, reqID string, retryCount int, at time.Time) error {
	return t.create(ctx, ofTransfer(reqID, fmt.Sprintf("%s-%s-%d", Transfer, reqID, retryCount), at))
}

// SweepTransfer enqueues a step of a transfer on behalf of a sweep that began at this time. It is named
// by that minute, because the task of [Tasks.Step] may be lost and its name used up. Its body marks it
// as swept: it is not retried, since the next sweep makes another. made reports whether it is new.
func (t *Tasks) SweepTransfer(ctx context.Context, reqID string, began time.Time) (made bool, err error) {
	e := ofTransfer(reqID, fmt.Sprintf("s-%d", began.Unix()/60), time.Time{})
	e.body["swept"] = true
	return t.add(ctx, e)
}

// SweepAct enqueues the repeat of an act on an account, as [Tasks.SweepTransfer] does for a transfer.
func (t *Tasks) SweepAct(ctx context.Context, act int64, began time.Time) (made bool, err error) {
	e := ofTransfer(fmt.Sprintf("act-%d", act), fmt.Sprintf("a-%d", began.Unix()/60), time.Time{})
	e.body = map[string]any{"act": act, "swept": true}
	return t.add(ctx, e)
}

func ofTransfer(reqID, suffix string, at time.Time) errand {
	return errand{function: Transfer, digest: digestOf(reqID), suffix: suffix, body: map[string]any{"req_id": reqID}, at: at}
}

// digestOf has the length of a submitter's digest. A ULID alone begins with its time.
func digestOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}
