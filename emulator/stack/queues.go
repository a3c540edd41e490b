package stack

import (
	"context"
	"fmt"
	"time"

	cloudtasksapi "cloud.google.com/go/cloudtasks/apiv2"
	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fencepost/fencepost/shared/tasks"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// The shortest and the longest time until a failed task is retried.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 10 * time.Second
)

const (
	project  = "fencepost-local"
	location = "local1"
	parent   = "projects/" + project + "/locations/" + location
)

// TasksClient returns a client of Cloud Tasks for the emulator. The caller closes it.
func (s *Stack) TasksClient(ctx context.Context) (*cloudtasksapi.Client, error) {
	return s.Tasks.Client(ctx)
}

// QueueName returns the full name of the kind's queue.
func QueueName(kind txmanager.Kind) string {
	return fmt.Sprintf("%s/queues/fencepost-%s-0", parent, kind)
}

// queueWorkers is the number of concurrent tasks of each queue; that of receipts is
// confirmations.receiptWorkers.
var queueWorkers = map[txmanager.Kind]int32{
	txmanager.KindAdvance: 100, txmanager.KindReceipt: 100, txmanager.KindConfirm: 100, txmanager.KindResubmit: 10, transferService: 20,
	tasks.Publish: 50,
}

// createQueues creates a queue for each function that moves transactions, with the settings that the code
// relies on: unlimited retries, at most ten seconds apart.
func (s *Stack) createQueues(ctx context.Context) error {
	client, err := s.Tasks.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	for kind, workers := range queueWorkers {
		_, err := client.CreateQueue(ctx, &cloudtaskspb.CreateQueueRequest{Parent: parent, Queue: &cloudtaskspb.Queue{
			Name:       QueueName(kind),
			RateLimits: &cloudtaskspb.RateLimits{MaxDispatchesPerSecond: 500, MaxConcurrentDispatches: workers},
			RetryConfig: &cloudtaskspb.RetryConfig{
				MaxAttempts: -1, MinBackoff: durationpb.New(minBackoff), MaxBackoff: durationpb.New(maxBackoff), MaxDoublings: 5,
			},
		}})
		if err != nil {
			return fmt.Errorf("create queue %s: %w", QueueName(kind), err)
		}
	}
	return nil
}
