package stack

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/fake/issuer"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Beside is what a stack shares with others: a chain and an issuer, which it does not close.
type Beside struct {
	Chain  *devchain.Chain
	Issuer *issuer.Issuer
	First  int // the number of dev accounts that belong to others
}

// Account returns the dev account of the stack's submitter at that place.
func (s *Stack) Account(i int) devchain.Account { return s.accounts[i] }

// SignerName returns the signer of the submitter's registration; "" is the local one.
func (s *Stack) SignerName(sub txmanager.Submitter) string { return s.signers[sub] }

// KillProcesses ends every function process by SIGKILL, for good. The load balancer answers 503 then.
func (s *Stack) KillProcesses() error {
	var errs []error
	for _, svc := range s.services {
		errs = append(errs, svc.pool.Kill())
	}
	return errors.Join(errs...)
}

// CountSigned returns the number of signed versions of the submitter's transactions that the stack's database has.
func (s *Stack) CountSigned(ctx context.Context, sub txmanager.Submitter) (n int, err error) {
	defer steps.Return(&err)
	db := steps.Value(pgx.Connect(ctx, s.Database))
	defer db.Close(ctx)
	err = db.QueryRow(ctx, `select count(*) from tx_version where submitter = $1`, sub).Scan(&n)
	return n, err
}
