package payout_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// manager is the real manager. A test can act between its calls and sees the posted intents.
type manager struct {
	*store.Store
	mu           sync.Mutex
	beforeCreate func()
	posted       [][]byte
	fail         error // returned by creates after they were made
}

func (m *manager) Create(ctx context.Context, in store.Intent, bound int) (store.StoredIntent, error) {
	m.mu.Lock()
	before, fail := m.beforeCreate, m.fail
	m.posted = append(m.posted, in.Payload)
	m.mu.Unlock()
	if before != nil {
		before()
	}
	accepted, err := m.Store.Create(ctx, in, bound)
	if fail != nil {
		return store.StoredIntent{}, errors.Join(fail, err)
	}
	return accepted, err
}

func (m *manager) set(change func(*manager)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// enqueuer counts enqueued tasks. The tests run the worker themselves.
type enqueuer struct{ atomic.Int64 }

func (w *enqueuer) EnqueueAdvance(context.Context, txmanager.Submitter, int64) error {
	w.Add(1)
	return nil
}
func (w *enqueuer) EnqueueAdvanceAt(context.Context, txmanager.Submitter, int64, time.Time) error {
	return nil
}
func (w *enqueuer) EnqueueTakeover(context.Context, txmanager.Submitter, txmanager.AcquireResult) error {
	return nil
}
func (w *enqueuer) EnqueuePoll(context.Context, txmanager.Submitter, txmanager.Kind, time.Time) error {
	return nil
}

// lines is a log that tests can read.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

// severe counts the lines with this severity and message.
func (l *lines) severe(severity, message string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.SplitSeq(strings.TrimSpace(l.all.String()), "\n") {
		var record struct{ Severity, Message string }
		if json.Unmarshal([]byte(line), &record) == nil && record.Severity == severity && strings.HasPrefix(record.Message, message) {
			n++
		}
	}
	return n
}
