package acceptance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// quick makes a dead holder's lease expire in two seconds. It also resends unanswered transactions
// soon and without limit, so that nothing is STUCK while no block comes, even on a slow machine.
var quick = withSettings(acceptancetest.Quick, map[string]string{"FENCEPOST_RESUBMIT_MAX_ATTEMPTS": "1000", "FENCEPOST_HANDLERS_TIMEOUT": "900ms"})

// postUntilAnswered repeats a post, as a caller does that gets no answer.
func (b bench) postUntilAnswered(t *testing.T, intent map[string]any) (txID string) {
	t.Helper()
	b.until(t, fmt.Sprintf("post %v: never answered", intent["requestId"]), func() bool {
		status, answer, err := b.Call(b.ctx, stack.CallerAccount, http.MethodPost, "/api/v1/tx", intent)
		var body struct{ TxID string }
		if err != nil || status >= 300 || json.Unmarshal(answer, &body) != nil {
			return false
		}
		txID = body.TxID
		return true
	})
	return txID
}

// killed waits until the point has killed its process.
func (b bench) killed(t *testing.T, folder, point string) {
	t.Helper()
	b.until(t, fmt.Sprintf("nobody passed %s", point), func() bool { return crash.Hit(folder, point) })
}

// TX-006: after a process dies by SIGKILL at any step, the others carry its transaction to its end
// once and without a gap. The test fails if a point is not reached. It also fails if a point has no
// test.
func TestTX006KillAtEveryPoint(t *testing.T) {
	t.Parallel()
	points := slices.DeleteFunc(crash.All(), ofTransfers)
	all := episodes(t)
	for name, e := range all {
		for _, point := range e.points {
			if !slices.Contains(points, point) {
				t.Errorf("an episode for %s, which is no point", point)
			}
		}
		points = slices.DeleteFunc(points, func(point string) bool { return slices.Contains(e.points, point) })
		parallel(t, name, func(t *testing.T) { killedInTurn(t, e.options, e.points, e.run) })
	}
	parallel(t, "plain", func(t *testing.T) { killedInTurn(t, stack.Options{}, points, plainEpisode) })
}

// ofTransfers reports whether the point has a test elsewhere: a point of transfers or of acts on accounts, or
// of proposals, which TestAProposalOutlivesItsProcess reaches.
func ofTransfers(point string) bool {
	of, _, _ := strings.Cut(point, ".")
	return slices.Contains([]string{"transfer", "payout", "ubscore", "proposal", "account"}, of)
}

// episode runs some points on one stack.
type episode struct {
	points  []string
	options stack.Options
	run     func(t *testing.T, b bench, folder, point string)
}

// episodes run the points that a plain run does not reach.
func episodes(t *testing.T) map[string]episode {
	t.Helper()
	hook := startEndpoint(t, true)
	return map[string]episode{
		"confirm":  {[]string{"confirm.taken", "confirm.looked", "confirm.released"}, stack.Options{Settings: map[string]string{"FENCEPOST_CONFIRMATIONS_REQUIRED": "8"}}, confirmEpisode},
		"resubmit": {[]string{"resubmit.taken", "resubmit.looked", "resubmit.claimed", "resubmit.sending", "resubmit.sent", "resubmit.released"}, stack.Options{}, resubmitEpisode},
		"cancel":   {[]string{"advance.version_signed", "advance.version_stored", "cancel.committed"}, stack.Options{}, cancelEpisode},
		"release":  {[]string{"release.taken", "release.written"}, stack.Options{}, releaseEpisode},
		"sweep":    {[]string{"sweep.found"}, stack.Options{}, sweepEpisode},
		"hooks":    {[]string{"reserve.taken", "reserve.written", "mark.taken", "mark.written"}, stack.Options{Settings: withHooks(), Window: 4}, hooksEpisode},
		"events":   {[]string{"publish.taken", "publish.told", "publish.settled", "publish.released"}, stack.Options{Settings: webhooks(map[string]*endpoint{"hook": hook}, nil)}, eventsEpisode(hook)},
		"handler":  {[]string{"advance.handler_asked", "advance.handler_answered"}, withPayroll(t, stack.Options{}), handlerEpisode},
	}
}

// plainEpisode carries intents of two submitters to their end.
func plainEpisode(t *testing.T, b bench, folder, point string) {
	first, other := b.Submitters()[0], b.Submitters()[1]
	b.postMany(t, first, 3)
	b.postUntilAnswered(t, transfer(other, "r"))
	b.killed(t, folder, point)
	b.ends(t, map[txmanager.Submitter]int{first: 3, other: 1})
}

// confirmEpisode ensures that a confirmation is due: no second block comes before a process has died.
func confirmEpisode(t *testing.T, b bench, folder, point string) {
	s := b.Submitters()[0]
	b.Chain.StopMining()
	b.postMany(t, s, 2)
	b.await(t, s, txmanager.Tracking, 1)
	b.mine(t, 1)
	b.killed(t, folder, point)
	b.Chain.StartMining()
	b.ends(t, map[txmanager.Submitter]int{s: 2})
}

// ends waits with the sweep's help until all intents end, and then checks the chain.
func (b bench) ends(t *testing.T, want map[txmanager.Submitter]int) {
	t.Helper()
	b.finish(t)
	b.wantAllContiguous(t, want)
	b.check(t)
}

// finish waits with the sweep's help until no work is left and all leases are free.
func (b bench) finish(t *testing.T) {
	t.Helper()
	b.swept(t, "not everything ended", func() bool {
		return b.count(`select count(*) from managed_tx where state not in ('CONFIRMED', 'FAILED')`) == 0 &&
			b.count(`select count(*) from submitter_lease where owner_node <> '' and expires_at > clock_timestamp() or rerun_requested`) == 0
	})
}

// resubmitEpisode removes a transaction from the node's pool.
func resubmitEpisode(t *testing.T, b bench, folder, point string) {
	s := b.Submitters()[0]
	b.inFlight(t, transfer(s, "lost"))
	b.Chain.DropPool()
	b.killed(t, folder, point)
	b.Chain.StartMining()
	b.ends(t, map[txmanager.Submitter]int{s: 1})
}

func cancelEpisode(t *testing.T, b bench, folder, point string) {
	s := b.Submitters()[0]
	id := b.inFlight(t, transfer(s, "regretted"))
	_, _, _ = b.Call(b.ctx, stack.CallerAccount, http.MethodPost, "/api/v1/tx/"+id+"/cancel", nil) // its answer may be lost
	b.killed(t, folder, point)
	b.versions(t, id, "ORIGINAL", "PLACEHOLDER")
	b.Chain.StartMining()
	b.ends(t, map[txmanager.Submitter]int{s: 1})
	if status, got := b.cancel(t, id); status != http.StatusOK || got.Outcome == "PENDING" {
		t.Errorf("cancel at the end: got %d %+v, want a definite answer", status, got)
	}
}

func releaseEpisode(t *testing.T, b bench, folder, point string) {
	s := b.Submitters()[0]
	must(b.DB.Exec(b.ctx, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`, s))(t)
	body := map[string]any{"incident": 1, "mode": "resume", "reason": "a false alarm"}
	b.until(t, "never released", func() bool { // as an operator who gets no answer
		_, _, _ = b.Call(b.ctx, stack.OperatorAccount, http.MethodPost, "/admin/v1/submitters/"+string(s)+"/release", body)
		return b.count(`select count(*) from protect_incident where closed_at is null`) == 0
	})
	b.killed(t, folder, point)
	b.postUntilAnswered(t, transfer(s, "after"))
	b.ends(t, map[txmanager.Submitter]int{s: 1})
}

// sweepEpisode leaves an intent to the sweep.
func sweepEpisode(t *testing.T, b bench, folder, point string) {
	s := b.Submitters()[0]
	b.Tasks.SetFaults(dropEverything)
	b.postUntilAnswered(t, transfer(s, "unheard"))
	b.Tasks.SetFaults(noFaults)
	b.overdue(t, 1)
	_ = b.RunSweep(b.ctx) // dies on the way
	b.killed(t, folder, point)
	b.ends(t, map[txmanager.Submitter]int{s: 1})
}
