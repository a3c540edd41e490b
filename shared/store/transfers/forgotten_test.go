package transfers_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
)

var errForgotten = errors.New("forgotten")

// forgetful is a vault that has forgotten each refund. It accepts an operator's statement with a line:
// a refund that was not applied is applied then.
type forgetful struct{ *vault }

func (f forgetful) Refund(context.Context, transfer.Call) transfer.Outcome {
	return transfer.Outcome{Err: errForgotten}
}

func (f forgetful) Forgot(lastUnknown string) bool {
	return lastUnknown == "refund: "+errForgotten.Error()
}

func (f forgetful) Objection(transfer.Outcome) error { return nil }

func (f forgetful) Record(ctx context.Context, _ transfer.Op, c transfer.Call, w transfer.OperatorStatement) transfer.Outcome {
	if w.Applied {
		return transfer.Outcome{Verdict: transfer.Success}
	}
	return f.vault.Refund(ctx, c)
}

// A line alone does not prove that a refund was not applied: the line of its withdrawal does not show
// it. A refund that the journals have is not repeated.
func TestALineDoesNotProveThatARefundWasNotApplied(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		made    bool // the journals have the refund
		word    transfer.OperatorStatement
		err     error
		refunds int
	}{
		"made, and said not to be":   {true, transfer.OperatorStatement{Line: 5}, transfer.ErrEvidence, 0},
		"not made, and said so":      {false, transfer.OperatorStatement{Line: 5}, nil, 1},
		"made, and said so":          {true, transfer.OperatorStatement{Applied: true, Line: 6}, nil, 0},
		"made, without line, denied": {true, transfer.OperatorStatement{}, transfer.ErrEvidence, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			row := r.at(t, transfer.Compensating)
			r.vault.stored["withdraw "+row.ReqID] = transfer.Outcome{Verdict: transfer.Success}
			keeps := forgetful{r.vault}
			all := map[transfer.AccountType]transfer.Ledger{transfer.Funding: keeps, transfer.Spot: keeps, transfer.Chain: keeps}
			c, err := transfer.New(r.Store, r.Store, all, transfer.DefaultRules(), telemetry.NewLogger(r.log, slog.LevelDebug, ""))
			if err != nil {
				t.Fatal(err)
			}
			r.Coordinator = c
			r.Proof = func(context.Context, transfer.Transfer, transfer.Op) (bool, error) { return x.made, nil }
			if got := r.drive(t, row.ReqID, transfer.Compensating); got.LastUnknown != "refund: forgotten" {
				t.Fatalf("unknown: got %q", got.LastUnknown)
			}
			order := transfer.RequestedAction{ReqID: row.ReqID, By: "ann", Reason: "r", Word: &x.word}
			got, err := r.Coordinator.Resolve(t.Context(), order, transfer.Refund)
			if !errors.Is(err, x.err) || (x.err == nil) != (got.State == transfer.RolledBack) {
				t.Errorf("resolve: got %s, %v; want %v", got.State, err, x.err)
			}
			if r.vault.moved["refund"] != x.refunds {
				t.Errorf("refunds that were made: got %d, want %d", r.vault.moved["refund"], x.refunds)
			}
		})
	}
}
