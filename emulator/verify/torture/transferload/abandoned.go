package transferload

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// abandon acts like a process of another build that dies: it stores the transfer and moves
// it at most to the state where its source has answered. The deployment must finish it.
func (u *user) abandon(ctx context.Context) {
	amount, _ := transfer.ParseAmount(u.Request.amount(u.Request.Units))
	r := transfer.Request{
		ReqID: ulid.Make().String(), CID: u.Request.CID, UserID: u.Request.UserID, From: u.Request.From, To: u.Request.To, Asset: u.Request.Asset.Name, Amount: amount,
	}
	begun := u.Ledger.Generation()
	created, err := u.create(ctx, r)
	if err != nil {
		return
	}
	u.Request.Change(func(t *Answers) { t.ID, t.Fresh, t.IDAt, t.Generation = r.ReqID, 1, time.Now(), begun })
	u.Ledger.Count(Abandoned)
	once, done := u.timeout.Context(ctx)
	defer done()
	if u.Request.steps == 0 || !u.move(once, r.ReqID, transfer.Init, transfer.SourcePending) || u.Request.steps == 1 {
		return
	}
	var source transfer.Ledger = u.env.Funding
	if u.Request.From == transfer.Spot {
		source = u.env.Core.Ledger()
	}
	if u.Replaced(begun) {
		return // the copy has no record that allows the withdrawal
	}
	if source.Withdraw(once, created.Call()).Verdict == transfer.Success {
		u.move(once, r.ReqID, transfer.SourcePending, transfer.SourceDone)
	}
}

// create stores the transfer, and tries until it succeeds. The error is that of ctx.
func (u *user) create(ctx context.Context, r transfer.Request) (transfer.Transfer, error) {
	var pauses retry.Backoff
	for {
		once, done := u.timeout.Context(ctx)
		created, err := u.env.Transfers.Create(once, r, transfer.Terms{SafetyFactor: 10})
		done()
		if err == nil {
			return created.Transfer, nil
		}
		if ctx.Err() != nil {
			return transfer.Transfer{}, ctx.Err()
		}
		pauses.Pause(ctx)
	}
}

func (u *user) move(ctx context.Context, reqID string, path ...transfer.State) bool {
	m, err := u.env.Transfers.Move(ctx, transfer.Transition{ReqID: reqID, Path: path})
	return err == nil && m.Done
}
