package transfer

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// The specification's table as edges: each state has a row of allowed transitions, all other
// pairs are forbidden.
func TestTransitionsAreTheSpecifications(t *testing.T) {
	t.Parallel()
	allowed := map[State]map[State]string{
		Init:          {SourcePending: "the source is about to be called", Failed: "expired or cancelled"},
		SourcePending: {SourceDone: "the source said yes", Failed: "the source refused"},
		SourceDone:    {TargetPending: "the target is about to be called"},
		TargetPending: {Committed: "the target said yes", Compensating: "the target refused"},
		Compensating:  {RolledBack: "given back"},
		Committed:     {}, Failed: {}, RolledBack: {},
	}
	check.Equal(t, "states", len(States()), len(allowed))
	for _, from := range States() {
		for _, to := range States() {
			_, want := allowed[from][to]
			check.Equal(t, fmt.Sprintf("%s to %s", from, to), from.MayBecome(to), want)
			var illegal IllegalTransitionError
			if err := Legal([]State{from, to}); (err == nil) != want || err != nil && (!errors.As(err, &illegal) || illegal != IllegalTransitionError{from, to}) {
				t.Errorf("path %s, %s: got %v, want legal %v", from, to, err, want)
			}
		}
	}
}

func TestStatesAreTheSpecifications(t *testing.T) {
	t.Parallel()
	for s, want := range map[State]string{
		0: "INIT", 10: "SOURCE_PENDING", 20: "SOURCE_DONE", 30: "TARGET_PENDING", 40: "COMMITTED terminal",
		-10: "FAILED terminal", -20: "COMPENSATING", -30: "ROLLED_BACK terminal", 7: "State(7)",
	} {
		got := s.String()
		if s.Terminal() {
			got += " terminal"
		}
		check.Equal(t, fmt.Sprintf("state %d", int16(s)), got, want)
	}
}

// A state that waits for an answer has one transition for the success. It has another for the
// refusal if its operation can be refused. No other state waits for a ledger.
func TestEachStateWaitsForItsOperation(t *testing.T) {
	t.Parallel()
	exits := map[Op]int{Withdraw: 2, Deposit: 2, Refund: 1}
	asked := map[Op]bool{}
	for _, s := range States() {
		if op := s.AwaitedOp(); op != "" {
			asked[op] = true
			check.Equal(t, fmt.Sprintf("exits of %s, which asks for %s", s, op), len(transitions[s]), exits[op])
		}
		if s.Terminal() != (len(transitions[s]) == 0) {
			t.Errorf("%s: terminal %v with %d exits", s, s.Terminal(), len(transitions[s]))
		}
	}
	check.Equal(t, "operations asked for", len(asked), len(exits))
}

func TestLegalPaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path []State
		want string
	}{
		{[]State{SourcePending, SourceDone, TargetPending}, ""},
		{[]State{SourcePending, TargetPending}, "a transfer in SOURCE_PENDING never becomes TARGET_PENDING"},
		{[]State{SourcePending, SourceDone, Committed}, "a transfer in SOURCE_DONE never becomes COMMITTED"},
		{[]State{Init}, "a path has 1 states, want at least 2"},
		{nil, "a path has 0 states, want at least 2"},
	} {
		got := ""
		if err := Legal(c.path); err != nil {
			got = err.Error()
		}
		check.Equal(t, fmt.Sprintf("%v", c.path), got, c.want)
	}
}

// Each answer that a ledger can give to each operation: only a success or a stored refusal
// changes the state, and only along the table.
func TestOnlyKnownAnswersChangeTheState(t *testing.T) {
	t.Parallel()
	type answer struct {
		op     Op
		v      Verdict
		reason Reason
	}
	leads := map[answer]string{
		{Withdraw, Success, ""}:            "[SOURCE_PENDING SOURCE_DONE TARGET_PENDING]",
		{Deposit, Success, ""}:             "[TARGET_PENDING COMMITTED]",
		{Refund, Success, ""}:              "[COMPENSATING ROLLED_BACK]",
		{Withdraw, Success, AccountFrozen}: "[SOURCE_PENDING SOURCE_DONE TARGET_PENDING]",
		{Deposit, Success, AccountFrozen}:  "[TARGET_PENDING COMMITTED]",
		{Refund, Success, AccountFrozen}:   "[COMPENSATING ROLLED_BACK]",
		{Withdraw, Refused, AccountFrozen}: "[SOURCE_PENDING FAILED]",
		{Deposit, Refused, AccountFrozen}:  "[TARGET_PENDING COMPENSATING]",
		{Deposit, Refused, Cancelled}:      "[TARGET_PENDING COMPENSATING]", // a cancelled payout
	}
	for _, op := range []Op{Withdraw, Deposit, Refund, OutsideDeposit, ""} {
		for v := Verdict(-1); v < 5; v++ {
			for _, reason := range []Reason{"", AccountFrozen, Expired, Cancelled, "no code", "_X", "9X"} {
				want := "[]"
				if path, ok := leads[answer{op, v, reason}]; ok {
					want = path
				} else if v == Success && leads[answer{op, v, ""}] != "" {
					want = leads[answer{op, v, ""}]
				} else if v == Refused && op == Deposit && reason == Expired {
					want = "[TARGET_PENDING COMPENSATING]"
				}
				path := pathAfter(Transfer{Type: FundingToSpot}, op, Outcome{Verdict: v, Reason: reason})
				check.Equal(t, fmt.Sprintf("%s answered %s %q", op, v, reason), fmt.Sprint(path), want)
				if path != nil && Legal(path) != nil {
					t.Errorf("%s answered %s: %v", op, v, Legal(path))
				}
			}
		}
	}
}
