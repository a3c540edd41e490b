package functions

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/shared/conservation"
	checks "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/transfer"
)

// evidence reads the journals' evidence about transfers.
type evidence struct {
	monitor *conservation.Monitor
	checks  *checks.Book
}

// proof reports whether the journals contain the operation of t. It first runs a check of conservation
// to read the newest entries; the check's verdict is not used. Proof that a refund is missing also
// requires the journal's withdrawal.
func (p evidence) proof(ctx context.Context, t transfer.Transfer, op transfer.Op) (applied bool, err error) {
	if _, err := p.monitor.Check(ctx, false); err != nil {
		return false, err
	}
	e, err := p.checks.EvidenceOf(ctx, t.ReqID)
	if err != nil {
		return false, err
	}
	is, should := sideOf(e, op), t.Type.Source()
	if op == transfer.Deposit {
		should = t.Type.Target()
	}
	if is != "" && is != should || op == transfer.Refund && e.Debit != should {
		return false, fmt.Errorf("%w: the journals have %s of %s at %q, and its withdrawal at %q", transfer.ErrEvidence, op, t.ReqID, is, e.Debit)
	}
	return is == should, nil
}

func sideOf(e conservation.Evidence, op transfer.Op) conservation.Side {
	switch op {
	case transfer.Withdraw:
		return e.Debit
	case transfer.Deposit:
		return e.Deposit
	}
	return e.Refund
}
