package acceptance

import (
	"cmp"
	"context"
	"testing"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/crash"
)

// inTurn runs a subtest for each name, one after another, on one stack, whose start costs more than most of them. Each
// subtest has other submitters, as many as the options say, and begins when the work of the earlier ones has ended. The
// checkers read the whole history at the end.
func inTurn(t *testing.T, o stack.Options, names []string, test func(t *testing.T, b bench, name string)) {
	t.Helper()
	each := cmp.Or(o.Submitters, 2)
	o.Submitters = each * len(names)
	b := setup(t, o)
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), acceptancetest.Within)
			defer cancel()
			b := bench{b.Deployment, ctx, turn{i * each, each, b.Chain.Head() + 1}}
			b.emptyQueues(t) // of tasks that are due later
			b.until(t, "a task of an earlier turn is left", b.idle)
			test(t, b, name)
		})
	}
	b.ctx = t.Context() // the time for one test may be over
	b.check(t)
}

// idle reports whether no task is left, and no function is being called.
func (b bench) idle() bool {
	for _, q := range b.Tasks.Stats() {
		if q.Pending > 0 {
			return false
		}
	}
	for _, f := range b.URLMap.Stats() {
		if f.InFlight > 0 {
			return false
		}
	}
	return true
}

// killedInTurn is inTurn on a stack whose processes die once in each subtest, when one reaches the point. The folder is
// for [bench.killed].
func killedInTurn(t *testing.T, o stack.Options, points []string, test func(t *testing.T, b bench, folder, point string)) {
	t.Helper()
	folder := t.TempDir()
	o.Settings = withSettings(quick, o.Settings, map[string]string{crash.Variable: folder})
	inTurn(t, o, points, func(t *testing.T, b bench, point string) {
		check(t, crash.Arm(folder, point, 1, crash.Kill))
		test(t, b, folder, point)
	})
}
