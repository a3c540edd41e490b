package acceptance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/checkers"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// check runs the checkers on the chain and the whole history. Work that is not settled yet gets a
// moment, as a late task can take the lease once more. A turn leaves it to the end of all turns.
func (b bench) check(t *testing.T) {
	t.Helper()
	if b.number > 0 {
		return // once, after the last turn
	}
	bound, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	var violations []checkers.Violation
	var err error
	_ = poll(bound, func() bool { // violations that remain at the end are the verdict
		violations, err = checkers.Check(b.ctx, checkers.Run{
			Database: b.Database, RPC: b.Chain.URL(), Submitters: b.Submitters(), Settled: true,
		})
		if err == nil && b.Second != nil {
			var more []checkers.Violation
			more, err = checkers.Check(b.ctx, checkers.Run{
				Database: b.Database, RPC: b.Second.URL(), Submitters: b.OnSecond(), Settled: true,
			})
			violations = append(violations, more...)
		}
		return err != nil || !slices.ContainsFunc(violations, func(v checkers.Violation) bool { return v.Checker == "settled" })
	})
	check(t, err, "check the incident")
	if len(violations) > 0 {
		t.Errorf("violations:\n%s", checkers.Report(violations))
	}
}

// A connection that breaks before or after a commit, or in the middle of its answer, loses and
// duplicates nothing. A process that does not know the result asks the database.
func TestConnectionsCutAroundCommit(t *testing.T) {
	t.Parallel()
	acts := map[string]string{
		"create": "insert into managed_tx", "acquire": "insert into submitter_lease", "fenced write": "require_lease",
		"allocation": "with want as", "release": "set owner_node = ''",
	}
	for _, kind := range []pgproxy.Kind{pgproxy.CutBeforeCommit, pgproxy.CutAfterCommit, pgproxy.CutMidReply} {
		parallel(t, kind.String(), func(t *testing.T) {
			inTurn(t, stack.Options{WireProxy: true, Settings: quick}, slices.Sorted(maps.Keys(acts)), func(t *testing.T, b bench, act string) {
				before := b.Proxy.Counts().Hits[kind]
				b.Proxy.Arm(pgproxy.Fault{Kind: kind, Times: 2, Match: pgproxy.Containing(acts[act])})
				s := b.Submitters()[0]
				b.postMany(t, s, 2)
				b.ends(t, map[txmanager.Submitter]int{s: 2})
				equal(t, "connections cut", b.Proxy.Counts().Hits[kind]-before, 2)
			})
		})
	}
}

// Postgres restarts under load, as after a crash, and every accepted intent is carried out.
func TestPostgresRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	cluster := must(pgcluster.Start(t.Context(), pgcluster.Options{Fsync: true}))(t)
	t.Cleanup(func() { _ = cluster.Stop() })
	b := setup(t, stack.Options{Cluster: cluster, Settings: quick})
	const n = 8
	for i := range n {
		for _, s := range b.Submitters() {
			b.postUntilAnswered(t, transfer(s, fmt.Sprintf("r-%d", i)))
		}
		if i == n/2 {
			check(t, cluster.Restart(b.ctx, true), "restart")
		}
	}
	b.ends(t, b.each(n))
}
