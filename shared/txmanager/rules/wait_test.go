package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math/big"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// Each decision of the planner to let the head of the queue wait has its cause.
func TestHeadWaitsWithItsCause(t *testing.T) {
	t.Parallel()
	unfunded := txmanager.Estimate{Reason: "insufficient funds for transfer", Unfunded: true}
	for name, c := range map[string]struct {
		payload  string
		estimate txmanager.Estimate
		adjust   func(*situation)
		want     txmanager.WaitCause
	}{
		"a value above the balance, without gas": {payload: "rich", want: txmanager.WaitBalance},
		"an estimate that lacks funds":           {payload: "call", estimate: unfunded, want: txmanager.WaitBalance},
		"no estimate":                            {payload: "call", want: txmanager.WaitGasEstimate},
		"its caller's maxFeePerGas":              {payload: "cheap", want: txmanager.WaitOwnBounds},
		"the deployment's ceiling": {payload: "pay", want: txmanager.WaitFeeCeiling,
			adjust: func(s *situation) { s.r.MaxFeePerGasWei = big.NewInt(1) }},
		"the fees of the day": {payload: "pay", want: txmanager.WaitPolicy,
			adjust: func(s *situation) {
				s.w.Bounds = txmanager.Bounds{FeesPerDayWei: txtest.Wei(21_000 * 22), FeesUsedWei: txtest.Wei(21_000 * 22)}
			}},
		"a MAC without an answer": {payload: "pay", want: txmanager.WaitMACService,
			adjust: func(s *situation) { s.w.Queue[0].Authenticity = txmanager.Authenticity{Unknown: Unverified} }},
		"a MAC of an unknown key": {payload: "pay", want: txmanager.WaitMACKey,
			adjust: func(s *situation) { s.w.Queue[0].Authenticity = txmanager.Authenticity{Unknown: "no key", NoKey: true} }},
	} {
		w := txtest.Queue(txtest.StateOf(2, 5), txtest.Queued(1, c.payload))
		s := situation{rulesOf(3), w, txtest.ViewOf(w, txtest.Block('a', 100))}
		if c.adjust != nil {
			c.adjust(&s)
		}
		p := s.r.PlanAllocations(s.w, ownBounded(), s.v, map[string]txmanager.Estimate{"q-1": c.estimate})
		if len(p.Transitions) != 1 || p.Transitions[0].To.Cause != c.want || p.Transitions[0].To.LastError == "" {
			t.Errorf("%s: got %+v, want cause %s and a reason", name, p.Transitions, c.want)
		}
	}
}

// A node's refusal of bytes sets a cause, and its acknowledgement, a receipt or an allocation clears
// any.
func TestCauseIsClearedWithTheWait(t *testing.T) {
	t.Parallel()
	r, head := rulesOf(3), txtest.Block('a', 100)
	for class, want := range map[txmanager.SendClass]txmanager.WaitCause{
		txmanager.SendInsufficientFunds: txmanager.WaitBalance, txmanager.SendUnknown: txmanager.WaitNodes,
		txmanager.SendPoolFull: txmanager.WaitNodeRefuses, txmanager.SendInvalid: txmanager.WaitForOperator,
	} {
		after := r.AfterBroadcast(txtest.Submitted(5), txmanager.SendResult{Class: class}, head, txtest.Now)
		check.Equal(t, class.String(), after.Cause, want)
		after.State = txmanager.Submitted
		check.Equal(t, class.String()+", acknowledged", r.AfterBroadcast(after, txmanager.SendResult{Class: txmanager.SendAccepted}, head, txtest.Now).Cause, "")
	}
	mined := txtest.Pending(5)
	mined.Explain(txmanager.WaitGasBump, "a limit")
	silent := txtest.Pending(5)
	silent.Explain(txmanager.WaitNodes, "")
	silent.NextCheckAt = txtest.In(5 * time.Second)
	for name, c := range map[string]struct {
		tx       txmanager.Tx
		receipts []txmanager.Receipt
	}{
		"a receipt":                 {mined, []txmanager.Receipt{txtest.ReceiptOf(mined, txtest.Block('a', 100))}},
		"an answer without receipt": {silent, nil},
	} {
		w := txtest.StateOf(1, 6, c.tx)
		j := r.Evaluate(w, txtest.Asking(w), txtest.Finding(txtest.ViewOf(w, txtest.Block('a', 100)), c.receipts...))
		if len(j.Transitions) != 1 || j.Transitions[0].To.Cause != "" {
			t.Errorf("%s: got %+v, want a transition without a cause", name, j.Transitions)
		}
	}
	w := txtest.Queue(txtest.StateOf(1, 5), txtest.Queued(1, "pay"))
	w.Queue[0].Explain(txmanager.WaitBalance, "balance: too little")
	p := r.PlanAllocations(w, txtest.Reader(nil), txtest.ViewOf(w, txtest.Block('a', 100)), nil)
	if len(p.Allocations) != 1 || p.Allocations[0].Tx.Cause != "" {
		t.Errorf("allocated: got %+v, want no cause", p.Allocations)
	}
}

// Only [txmanager.Tx.Explain] sets a transaction's reason, so that none is set without its cause.
func TestOnlyExplainSetsAReason(t *testing.T) {
	t.Parallel()
	files := 0
	check.OK(t)(filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "wait.go" {
			return err
		}
		files++
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if set, ok := n.(*ast.AssignStmt); ok && slices.ContainsFunc(set.Lhs, isReason) {
				t.Errorf("%s: sets LastError or Cause, want Explain", path)
			}
			return true
		})
		return err
	}))
	if files < 30 {
		t.Errorf("files: got %d, too few to be all", files)
	}
}

func isReason(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && (s.Sel.Name == "LastError" || s.Sel.Name == "Cause")
}

// A nonce without bytes waits for a node only while no node answers, and a reserved one never does.
func TestNodesCauseEndsWithTheirAnswer(t *testing.T) {
	t.Parallel()
	r := rulesOf(3)
	bare, lent := txtest.Bare(4), txtest.Lent(5, txmanager.Reserved, time.Hour)
	again := time.Now().Add(time.Second)
	check.Equal(t, "reserved", r.AfterNoAnswer(lent, again).Cause, "")
	bare = r.AfterNoAnswer(bare, again)
	check.Equal(t, "without bytes", bare.Cause, txmanager.WaitNodes)
	var after []txmanager.WaitCause
	for _, m := range r.PostponeBlocked(txtest.StateOf(1, 5, bare)) {
		after = append(after, m.To.Cause)
	}
	check.Same(t, "after an answer", after, []txmanager.WaitCause{""})
}
