package attacks

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
)

// target is a running stack.
type target struct {
	*stack.Stack
	ctx context.Context
}

// attacked starts a stack for t: two submitters, one process, no sweep.
func attacked(t testing.TB, o stack.Options) target {
	t.Helper()
	var err error
	if o.Cluster, err = pgcluster.Shared(); err != nil {
		t.Fatal(err)
	}
	o.Binary, o.Processes, o.Submitters, o.SweepEvery, o.BlockTime = binary, 1, 2, -1, time.Second
	log := &logOf{t: t}
	o.Output = log
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	if _, benchmark := t.(*testing.B); !benchmark {
		ctx, cancel = context.WithTimeout(ctx, within)
		t.Cleanup(cancel)
	}
	s, err := stack.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close()); err != nil {
			t.Errorf("stop: %v", err)
		}
		log.show()
	})
	return target{s, ctx}
}

// logOf keeps the end of the functions' log, and shows it if the test failed.
type logOf struct {
	t    testing.TB
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logOf) Write(p []byte) (int, error) {
	const most = 1 << 20
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() > most {
		l.text.Next(most / 2)
	}
	return l.text.Write(p)
}

func (l *logOf) show() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text := l.text.Bytes(); l.t.Failed() {
		l.t.Logf("the functions' log, its end:\n%s", text[max(0, len(text)-20_000):])
	}
}
