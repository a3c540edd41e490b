package stack

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/config"
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

// QueueName returns the full name of the kind's queue in a stack with the default settings.
func QueueName(kind txmanager.Kind) string {
	return fmt.Sprintf("%s/queues/fencepost-%s-0", parent, kind)
}

// queueWorkers is the number of concurrent tasks of each queue; confirmations.receiptWorkers replaces that of
// receipts.
var queueWorkers = map[txmanager.Kind]int32{
	txmanager.KindAdvance: 100, txmanager.KindReceipt: 100, txmanager.KindConfirm: 100, txmanager.KindResubmit: 10, transferService: 20,
	tasks.Publish: 50,
}

// createQueues creates the queues of each function that moves transactions. Their number and ids are those of the
// settings. Their terms are those that the code relies on: unlimited retries, at most ten seconds apart.
func (s *Stack) createQueues(ctx context.Context, c config.Config) {
	client := steps.Value(s.Tasks.Client(ctx))
	defer client.Close()
	for kind, workers := range queueWorkers {
		if kind == txmanager.KindReceipt {
			workers = int32(c.Finality.ReceiptWorkers)
		}
		for shard := range c.Tasks.QueueShards {
			name := fmt.Sprintf("%s/queues/%s-%s-%d", parent, c.Tasks.QueuePrefix, kind, shard)
			_, err := client.CreateQueue(ctx, &cloudtaskspb.CreateQueueRequest{Parent: parent, Queue: &cloudtaskspb.Queue{
				Name:       name,
				RateLimits: &cloudtaskspb.RateLimits{MaxDispatchesPerSecond: 500, MaxConcurrentDispatches: workers},
				RetryConfig: &cloudtaskspb.RetryConfig{
					MaxAttempts: -1, MinBackoff: durationpb.New(minBackoff), MaxBackoff: durationpb.New(maxBackoff), MaxDoublings: 5,
				},
			}})
			steps.OK(err, "create queue ", name)
		}
	}
}
