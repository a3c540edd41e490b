package tasks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// Transfer is the function that transfers' tasks call, and the middle of their
// queues' ids.
const Transfer = "transfer"

// Step asks for the next step of a transfer at the time given. The task is named by
// the transfer and the number of attempts that were postponed, so that all who see
// the same plan make one.
func (t *Tasks) Step(ctx context.Context, reqID string, retryCount int, at time.Time) error {
	_, err := t.add(ctx, ofTransfer(reqID, fmt.Sprintf("%s-%s-%d", Transfer, reqID, retryCount), at))
	return err
}

// SweepTransfer asks for a step of a transfer on behalf of a sweep that began at this
// time, by whose minute it is named: the task of [Tasks.Step] may be lost, and its
// name burnt. Its body says that it is swept: it need not come again, since the next
// sweep makes another. made says that it was not there already.
func (t *Tasks) SweepTransfer(ctx context.Context, reqID string, began time.Time) (made bool, err error) {
	e := ofTransfer(reqID, fmt.Sprintf("s-%d", began.Unix()/60), time.Time{})
	e.body["swept"] = true
	return t.add(ctx, e)
}

// TransferQueue is the id of the queue of the transfer's tasks.
func (o Options) TransferQueue(reqID string) string { return o.queue(Transfer, digestOf(reqID)) }

func ofTransfer(reqID, suffix string, at time.Time) errand {
	return errand{function: Transfer, digest: digestOf(reqID), suffix: suffix, body: map[string]any{"req_id": reqID}, at: at}
}

// digestOf is as long as a submitter's: a ULID begins with its time.
func digestOf(reqID string) string {
	sum := sha256.Sum256([]byte(reqID))
	return hex.EncodeToString(sum[:16])
}
