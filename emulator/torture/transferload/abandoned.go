package transferload

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/emulator/torture/retry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// abandon does what another build does that dies: it stores the transfer and carries it,
// by one write after the other, as far as where its source has answered, or less far.
// Wherever it stops, the house goes on.
func (u *user) abandon(ctx context.Context) {
	amount, _ := transfer.ParseAmount(u.script.amount(u.script.Units))
	r := transfer.Request{
		ReqID: ulid.Make().String(), CID: u.script.CID, UserID: u.script.UserID, From: u.script.From, To: u.script.To, Asset: u.script.Asset.Name, Amount: amount,
	}
	begun := u.ledger.Generation()
	created, err := u.create(ctx, r)
	if err != nil {
		return
	}
	u.set(func(t *Answers) { t.ReqID, t.Fresh, t.ReqAt, t.Generation = r.ReqID, 1, time.Now(), begun })
	u.ledger.count(Abandoned)
	once, done := u.timeout.Context(ctx)
	defer done()
	if u.script.steps == 0 || !u.move(once, r.ReqID, transfer.Init, transfer.SourcePending) || u.script.steps == 1 {
		return
	}
	var source transfer.Ledger = u.env.Funding
	if u.script.From == transfer.Spot {
		source = u.env.Core.Ledger()
	}
	if u.databaseReplacedSince(begun) {
		return // nothing says in the copy that it may be withdrawn
	}
	if source.Withdraw(once, created.Call()).Verdict == transfer.Success {
		u.move(once, r.ReqID, transfer.SourcePending, transfer.SourceDone)
	}
}

// create stores the transfer, however often it takes. The error is that of ctx.
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
	m, err := u.env.Transfers.Move(ctx, transfer.Move{ReqID: reqID, Path: path})
	return err == nil && m.Done
}
