package transfers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/transfer"
)

// load makes transfers of several users, in both directions and with all ends, until it is stopped.
type load struct {
	users []*user
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu    sync.Mutex
	wrong []string
}

// newLoad makes users and lets each post without pause, repeating a request until it is answered. One
// in four cannot receive money in Funding, one in Trading.
func (h *deployment) newLoad(t *testing.T, users int) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{stop: stop}
	t.Cleanup(stop)
	for i := range users {
		u := h.newUser(t, 1000, 1000)
		switch i % 4 {
		case 1:
			u.status(funding, "DISABLED")
		case 2:
			u.status(spot, "DISABLED")
		}
		l.users = append(l.users, u)
		l.done.Go(func() { l.post(ctx, u) })
	}
	return l
}

// post continues until ctx ends; the last request is repeated until it is answered.
func (l *load) post(ctx context.Context, u *user) {
	source := rand.New(rand.NewPCG(1, uint64(u.ID)))
	for n := 0; ctx.Err() == nil; n++ {
		from := sides[source.IntN(2)]
		want := body(from, other(from), transfer.FormatUnits(1+source.Uint64N(300), usdt.Precision), "cid", fmt.Sprint(n))
		for u.Ctx.Err() == nil {
			a, err := u.try(want)
			if err == nil && a.Status < 500 {
				if a.Status == http.StatusConflict || a.ReqID == "" {
					l.mu.Lock()
					l.wrong = append(l.wrong, fmt.Sprintf("%v: %+v", want, a))
					l.mu.Unlock()
				}
				break
			}
			time.Sleep(20 * time.Millisecond) // to pause between attempts while no process answers
		}
	}
}

// end stops the load once it is large enough, and waits for its last answers.
func (l *load) end(t *testing.T) {
	t.Helper()
	poll(t, fmt.Sprintf("ten transfers for each of %d users", len(l.users)), func() bool {
		n := 0
		for _, u := range l.users {
			n += len(u.All())
		}
		return n >= 10*len(l.users)
	})
	l.stop()
	l.done.Wait()
	if len(l.wrong) > 0 {
		t.Errorf("answers that no caller should get: %v", l.wrong)
	}
}

// settled waits until everything has ended, and checks the whole deployment.
func (h *deployment) settled(t *testing.T) {
	t.Helper()
	h.Await(t, "every transfer has ended", `select not exists (select from transfers_tb where open)`)
	check(t, h.Verify(true))
}

// FND-004: function processes and the core die by SIGKILL at each point under load, one after the
// other. Every point is reached, and every transfer ends once.
func TestFND004CrashAtAnyPoint(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	h := own(t, stack.Options{
		Processes: 3, SweepEvery: time.Second, CheckEvery: time.Second,
		Settings: map[string]string{crash.Variable: folder}, Core: stack.CoreOptions{CrashPoints: folder, SnapshotEvery: 50},
	})
	l := h.newLoad(t, 8)
	for _, point := range crash.Of("transfer.") {
		check(t, crash.Arm(folder, point, 1, crash.Kill))
		switch point {
		case "transfer.advancing", "transfer.advanced":
			h.leaveInSourceDone(t)
		case "transfer.swept":
			h.leaveToTheSweep(t)
		}
		poll(t, "a process died at "+point, func() bool { return crash.Hit(folder, point) })
	}
	for _, point := range crash.All() {
		if !strings.HasPrefix(point, "ubscore.") {
			continue
		}
		h.coreDies(t, folder, point, 3)
		h.coreAgain(t)
	}
	l.end(t)
	h.settled(t)
}

// leaveInSourceDone leaves a new user's transfer in the state whose next step reaches the point.
func (h *deployment) leaveInSourceDone(t *testing.T) {
	t.Helper()
	u := h.newUser(t, 100, 100)
	reqID := u.accepted(funding, 40)
	u.Move(reqID, transfer.Init, transfer.SourcePending)
	equal(t, "withdraw", u.Funding.Withdraw(u.Ctx, u.Load(reqID).Call()), success)
	u.Move(reqID, transfer.SourcePending, transfer.SourceDone)
	go u.TaskAt(strings.TrimPrefix(u.URLMap.InternalURL(), "http://"), reqID)
}

// leaveToTheSweep leaves a new user's transfer without a task and without a worker.
func (h *deployment) leaveToTheSweep(t *testing.T) {
	t.Helper()
	h.newUser(t, 100, 100).accepted(funding, 40)
}

// coreDies kills the core when it reaches the point for the nth time.
func (h *deployment) coreDies(t *testing.T, folder, point string, n int) {
	t.Helper()
	dead := h.Core.Process()
	check(t, crash.Arm(folder, point, n, crash.Kill))
	died(t, dead, func() bool { return crash.Hit(folder, point) }, point)
}

// coreAgain starts a core that has died.
func (h *deployment) coreAgain(t *testing.T) {
	t.Helper()
	check(t, h.Core.Kill()) // so that the proxy notices
	check(t, h.Core.Start(t.Context()))
}

// INV-004: crash recovery, over all accounts. Function processes and the core are killed and paused
// under load. The core's log is torn as by a crash of the machine, each time in lines that were
// written and not yet durable. The check of conservation runs meanwhile and finds nothing. In the end
// no money is missing or added.
func TestINV004CrashRecovery(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	h := own(t, stack.Options{
		Processes: 3, SweepEvery: time.Second, CheckEvery: 200 * time.Millisecond, Core: stack.CoreOptions{CrashPoints: folder},
	})
	l := h.newLoad(t, 8)
	for round := range 4 {
		h.progress(t, 20)
		check(t, h.Processes()[0].Kill())
		h.progress(t, 10)
		h.tear(t, folder, int64(round)*7)
		check(t, h.Core.Start(t.Context()))
		h.progress(t, 10)
		check(t, h.Core.Pause())
		h.unknown(t)
		check(t, h.Core.Continue())
	}
	l.end(t)
	h.settled(t)
}

// tear kills the core before the fsync of a record, and leaves keep bytes of it.
func (h *deployment) tear(t *testing.T, folder string, keep int64) {
	t.Helper()
	h.coreDies(t, folder, "ubscore.appended", 1)
	check(t, h.Core.Kill()) // so that the proxy notices
	if undurable, err := h.Core.Tear(keep); err != nil || undurable <= keep {
		t.Fatalf("tear: got %d bytes that were not durable, %v; want more than the %d that are left", undurable, err, keep)
	}
}

// progress waits until n more transfers have ended.
func (h *deployment) progress(t *testing.T, n int) {
	t.Helper()
	const ended = `select count(*) from transfers_tb where not open`
	began := acceptancetest.Rows[int](t, h.Deployment, ended)[0]
	h.Await(t, "more transfers have ended", `select (`+ended+`) >= $1::int`, began+n)
}

// unknown waits until a transfer has had an unknown answer.
func (h *deployment) unknown(t *testing.T) {
	t.Helper()
	h.Await(t, "a call without an answer", `select exists (select from transfers_tb where failures > 0)`)
}
