package ubscore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/transfer"
)

func points() (ours []string) {
	for _, p := range crash.All() {
		if strings.HasPrefix(p, "ubscore.") {
			ours = append(ours, p)
		}
	}
	return ours
}

// armed returns a core on the folder that is killed or stopped when it reaches the point for the hit-th
// time.
func armed(t *testing.T, folder, point string, hit int, action string) *rig {
	t.Helper()
	armed := t.TempDir()
	r := setup(t, ubscore.Options{Folder: folder, CrashPoints: armed, SnapshotEvery: 7})
	check.OK(t)(crash.Arm(armed, point, hit, action))
	return r
}

// ask sends one of many operations. The number n alone determines the request and how often it can take
// effect.
func (r *rig) ask(n int) transfer.Outcome {
	switch c := call(fmt.Sprint("op-", n/3), uint64(n/3%9)); n % 3 {
	case 0:
		return r.Withdraw(r.ctx, c)
	case 1:
		return r.Deposit(r.ctx, c)
	default:
		return r.Refund(r.ctx, c)
	}
}

const operations = 60

// askAll sends all operations by several callers, and returns the outcomes.
func (r *rig) askAll() (answered [operations]transfer.Outcome) {
	var callers sync.WaitGroup
	for caller := range 6 {
		callers.Go(func() {
			for n := caller; n < operations; n += 6 {
				answered[n] = r.ask(n)
			}
		})
	}
	callers.Wait()
	return answered
}

// A core killed at any step still knows every answer that it gave: it gives each one again. Unanswered
// requests are applied once. Three more repetitions of all change nothing.
func TestCoreKilledAtAnyPointKeepsItsAnswers(t *testing.T) {
	t.Parallel()
	if len(points()) != 4 {
		t.Fatalf("points: got %v, want four", points())
	}
	for _, point := range points() {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			r := stocked(t, ubscore.Options{}, 50)
			r.kill(t)
			r = armed(t, r.options.Folder, point, 9, crash.Kill)
			answered := r.askAll()
			<-r.process.Done()
			if !crash.Hit(r.options.CrashPoints, point) {
				t.Fatalf("nobody passed %s: the core ended by %v", point, r.process.Err())
			}
			r.again(t)
			now := r.wantSameAnswers(t, answered)
			lines, _, balances := r.readAll(t)
			for range 3 {
				check.Same(t, "asked again", r.wantSameAnswers(t, now), now, cmp.Transformer("said", withoutError))
				r.again(t)
			}
			again, _, balancesNow := r.readAll(t)
			check.Same(t, "journal after everything was asked for again", again, lines)
			check.Same(t, "balances after everything was asked for again", balancesNow, balances)
		})
	}
}

// withoutError returns an outcome without its error's text.
func withoutError(o transfer.Outcome) string { return fmt.Sprint(o.Verdict, o.Reason) }

// wantSameAnswers sends all operations in order, and checks that earlier answers are the same.
func (r *rig) wantSameAnswers(t *testing.T, answered [operations]transfer.Outcome) (now [operations]transfer.Outcome) {
	t.Helper()
	for n := range answered {
		now[n] = r.ask(n)
		refund := n%3 == 2
		if now[n].Verdict == transfer.Unknown && !refund {
			t.Errorf("operation %d: got %+v, want it to be known now", n, now[n])
		}
		if answered[n].Verdict != transfer.Unknown && answered[n] != now[n] {
			t.Errorf("operation %d: got %+v, want %+v as it was heard before", n, now[n], answered[n])
		}
	}
	return now
}

func (r *rig) readAll(t *testing.T) (lines []transfer.Entry, seq uint64, balances any) {
	t.Helper()
	r.wantSum(t)
	seq, all, err := r.AllBalances(r.ctx)
	check.OK(t)(err)
	return r.journal(t), seq, all
}

// deadBeforeFsync returns the folder of a core that died with one withdrawal written and not synced.
func deadBeforeFsync(t *testing.T) (folder string) {
	t.Helper()
	r := stocked(t, ubscore.Options{}, 100)
	r.kill(t)
	r = armed(t, r.options.Folder, "ubscore.appended", 1, crash.Kill)
	if got := r.Withdraw(r.ctx, call("torn", 30)); got.Verdict != transfer.Unknown {
		t.Fatalf("a withdrawal that the core dies of: got %+v, want unknown", got)
	}
	<-r.process.Done()
	return r.options.Folder
}

// The core starts with its last record torn at any byte. The unanswered withdrawal is gone, and is applied
// when it is repeated.
func TestCoreStartsWithLogTornAtAnyByte(t *testing.T) {
	t.Parallel()
	dead := deadBeforeFsync(t)
	all, err := ubscore.Tear(dead, 1<<20)
	if err != nil || all < 30 {
		t.Fatalf("bytes that no fsync has returned for: got %d, %v; too few for a record", all, err)
	}
	for keep := range all + 1 {
		folder := filepath.Join(t.TempDir(), "core")
		check.OK(t)(os.CopyFS(folder, os.DirFS(dead)))
		check.OK(t)(ubscore.Tear(folder, keep))
		r := setup(t, ubscore.Options{Folder: folder})
		if keep < all {
			r.wantUnits(t, 100)
		} else {
			r.wantUnits(t, 70) // complete: it may have been durable
		}
		for range 2 {
			want(t, "withdraw", r.Withdraw(r.ctx, call("torn", 30)), success)
			r.wantUnits(t, 70)
		}
		r.wantSum(t)
		r.kill(t)
	}
}

// A second core does not start on the same folder.
func TestSecondCoreOnAFolderDoesNotStart(t *testing.T) {
	t.Parallel()
	r := stocked(t, ubscore.Options{}, 100)
	ctx, cancel := context.WithTimeout(r.ctx, within)
	defer cancel()
	p, err := processes.Start(ctx, ubscore.Spec(r.options))
	if err == nil {
		_ = p.Kill()
		t.Fatal("a second core started")
	}
	if !strings.Contains(err.Error(), "another process has this folder") {
		t.Errorf("a second core: got %v, want it to say why", err)
	}
	want(t, "the first goes on", r.Deposit(r.ctx, call("R", 1)), success)
}
