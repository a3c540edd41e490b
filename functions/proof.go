package functions

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/transfer"
)

// proof says whether the journals have the operation of t as applied. It makes a check
// of conservation first, whose verdict does not count here: it reads all that the
// journals have by now. That a refund was not applied wants its withdrawal, too.
func (p *transferParts) proof(ctx context.Context, t transfer.Transfer, op transfer.Op) (applied bool, err error) {
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
