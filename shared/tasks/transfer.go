package tasks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

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
