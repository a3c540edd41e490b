package load

import (
	"context"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/plan"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

var alice = eip155.NewSubmitter(1337, eip155.Address([20]byte{1}))

func setup(answers Answers) *caller {
	in := &Intent{Submitter: alice, ValueWei: big.NewInt(1)}
	in.Change(func(t *Answers) { *t = answers })
	return newCaller(nil, new(Ledger), in, "")
}

func answerOf(begun time.Time, e End) client.Answer {
	return client.Answer{Begun: begun, State: string(e.State), SubState: string(e.Sub)}
}

func (c *caller) wantContradiction(t *testing.T, name, part string) {
	t.Helper()
	contradictions := c.Ledger.Contradictions("")
	if (part == "") != (len(contradictions) == 0) || (part != "" && !strings.Contains(contradictions[0].Detail, part)) {
		t.Errorf("%s: got lies %v, want one that says %q", name, contradictions, part)
	}
}

// A final answer must not change. Only a request that began before it arrived may get an
// older state.
func TestFinalAnswersNeverChange(t *testing.T) {
	t.Parallel()
	confirmed, reverted := End{State: txmanager.Confirmed}, End{State: txmanager.Failed, Sub: txmanager.Reverted}
	arrived := time.Now()
	for name, c := range map[string]struct {
		answer client.Answer
		want   string
	}{
		"the same":          {answerOf(arrived.Add(time.Second), confirmed), ""},
		"another end":       {answerOf(arrived.Add(-time.Second), reverted), "now it is FAILED/REVERTED"},
		"no end, put later": {answerOf(arrived.Add(time.Second), End{State: txmanager.Tracking}), "put after that got TRACKING"},
		"no end, put first": {answerOf(arrived.Add(-time.Second), End{State: txmanager.Tracking}), ""},
	} {
		caller := setup(Answers{ID: "t", End: &confirmed, EndAt: arrived})
		caller.recordAnswer(c.answer)
		caller.wantContradiction(t, name, c.want)
	}
	first := setup(Answers{ID: "t"})
	if !first.recordAnswer(answerOf(arrived, confirmed)) || *first.Request.Answers().End != confirmed {
		t.Errorf("the first final answer: got %v, want it kept", first.Request.Answers().End)
	}
}

// A requestId has one txId and is stored once, also by copies of a post that are repeated after a restore. Their answers
// can arrive out of order.
func TestSecondTxIDIsAContradiction(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statuses []int
		ids      []string
		want     string
	}{
		"stored, then known":   {[]int{202, 200, 200}, []string{"a", "a", "a"}, ""},
		"known, then stored":   {[]int{200, 202}, []string{"a", "a"}, ""},
		"never heard of it":    {[]int{200}, []string{"a"}, ""},
		"another txId":         {[]int{202, 200}, []string{"a", "b"}, `got id "b"`},
		"no txId":              {[]int{202}, []string{""}, `got id ""`},
		"stored a second time": {[]int{202, 202}, []string{"a", "a"}, "2 answers said"},
	} {
		for generation := range 2 {
			caller := setup(Answers{})
			for i, status := range c.statuses {
				caller.RecordPost(t.Context(), client.Answer{Status: status, TxID: c.ids[i], Generation: generation}, generation > 0)
			}
			caller.wantContradiction(t, fmt.Sprint(name, ", after restores: ", generation), c.want)
		}
	}
}

// CANCELLED and EXECUTED come with a final state, PENDING with any other.
func TestCancelOutcomeMustMatchState(t *testing.T) {
	t.Parallel()
	cancelled := End{State: txmanager.Failed, Sub: txmanager.Cancelled}
	for name, c := range map[string]struct {
		status  int
		outcome string
		reached End
		want    string
	}{
		"cancelled":           {200, "CANCELLED", cancelled, ""},
		"pending":             {202, "PENDING", End{State: txmanager.Tracking}, ""},
		"definite too early":  {200, "CANCELLED", End{State: txmanager.Tracking}, "definite: true, and final: false"},
		"pending at the end":  {202, "PENDING", cancelled, "definite: false, and final: true"},
		"neither yes nor no":  {200, "MAYBE", cancelled, "want CANCELLED"},
		"accepted is unknown": {404, "", End{}, "want CANCELLED"},
		"definite with a 202": {202, "CANCELLED", cancelled, "want CANCELLED"},
	} {
		caller := setup(Answers{ID: "t"})
		a := answerOf(time.Time{}, c.reached)
		a.Status, a.Outcome = c.status, c.outcome
		caller.recordCancelAnswer(a)
		caller.wantContradiction(t, name, c.want)
	}
}

// The seed determines each script. The first few callers have each habit once.
func TestSameSeedDrawsSameScripts(t *testing.T) {
	t.Parallel()
	one, two := plan.Source(4), plan.Source(4)
	values := map[string]bool{}
	for n := range 200 {
		a, b := newIntent(alice, n, one), newIntent(alice, n, two)
		if a.Habits != b.Habits || a.cancelAfter != b.cancelAfter {
			t.Fatalf("script %d, drawn twice: got %+v and %+v", n, a.Habits, b.Habits)
		}
		values[a.ValueWei.String()] = true
		first := map[int]bool{0: a.Copies > 1, 1: a.Conflict, 2: a.Invalid, 3: a.Again, 4: a.cancelAfter > 0}
		if does, ok := first[n]; ok && !does {
			t.Errorf("script %d: got %+v, want its habit in it", n, a.Habits)
		}
	}
	if len(values) != 200 {
		t.Errorf("values of 200 intents: got %d, want each its own", len(values))
	}
}

// answering makes the deployment answer each call of the caller, which is the n-th, by do.
func (c *caller) answering(do func(n int) (status int, text string)) {
	n := 0
	c.Call = func(context.Context, string, string, any) (int, []byte, error) {
		n++
		status, text := do(n)
		return status, []byte(text), nil
	}
}

// Another payload under a requestId is a conflict. REQUEST_RECORDED answers it only where the
// caller knows that a release has recorded the request.
func TestAnotherPayloadIsAConflict(t *testing.T) {
	t.Parallel()
	const want = "want 409 REQUEST_ID_CONFLICT"
	for name, c := range map[string]struct {
		answers Answers
		status  int
		code    string
		want    string
	}{
		"a conflict":            {Answers{ID: "t"}, 409, "REQUEST_ID_CONFLICT", ""},
		"recorded by a release": {Answers{ID: "t", Recorded: true}, 409, "REQUEST_RECORDED", ""},
		"recorded by nobody":    {Answers{ID: "t"}, 409, "REQUEST_RECORDED", want},
		"recorded, and taken":   {Answers{ID: "t", Recorded: true}, 202, "", want},
		"taken":                 {Answers{ID: "t"}, 200, "", want},
	} {
		caller := setup(c.answers)
		caller.answering(func(int) (int, string) { return c.status, fmt.Sprintf(`{"code": %q}`, c.code) })
		caller.PostConflicting(t.Context())
		caller.wantContradiction(t, name, c.want)
	}
}

// After a restore each copy of a post is posted again, also if the restored database has answered another one. The answer
// to a copy that was posted before proves nothing.
func TestEachCopyIsPostedAgainAfterARestore(t *testing.T) {
	t.Parallel()
	caller := setup(Answers{})
	posts := 0
	caller.answering(func(n int) (int, string) {
		if posts = n; n == 1 { // the restored database answers another copy meanwhile
			caller.Ledger.Restored(time.Now())
			caller.RecordPost(t.Context(), client.Answer{Status: 202, TxID: "b", Generation: 1}, true)
			return 202, `{"txId": "a"}`
		}
		return 200, `{"txId": "b"}`
	})
	caller.Post(t.Context())
	check.Equal(t, "posts of the copy", posts, 2)
	caller.wantContradiction(t, "posted again", "")
}

// After a restore, in a call or in the pause before the next, another payload is not posted again: the copy may
// have lost the request, and would store it. For the same reason an answer of the copy proves nothing.
func TestAnotherPayloadIsNotPostedToACopy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status  int // of the first answer
		restore func(func())
	}{
		"in the call":          {http.StatusServiceUnavailable, func(restored func()) { restored() }},
		"in the pause":         {http.StatusServiceUnavailable, func(restored func()) { time.AfterFunc(20*time.Millisecond, restored) }},
		"and the copy took it": {http.StatusAccepted, func(restored func()) { restored() }},
	} {
		posts := 0
		caller := setup(Answers{ID: "t"})
		caller.answering(func(n int) (int, string) {
			posts = n
			c.restore(func() { caller.Ledger.Restored(time.Now()) })
			return c.status, "{}"
		})
		caller.PostConflicting(t.Context())
		check.Equal(t, name+": posts", posts, 1)
		caller.wantContradiction(t, name, "")
	}
}
