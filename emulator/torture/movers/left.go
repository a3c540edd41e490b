package movers

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/emulator/torture/patience"
	"github.com/fencepost/fencepost/shared/transfer"
)

// leave does what another build does that dies: it stores the transfer and carries it,
// by one write after the other, as far as where its source has answered, or less far.
// Wherever it stops, the house goes on.
func (u *user) leave(ctx context.Context) {
	amount, _ := transfer.ParseAmount(u.wish.amount(u.wish.Units))
	r := transfer.Request{
		ReqID: ulid.Make().String(), CID: u.wish.CID, UserID: u.wish.UserID, From: u.wish.From, To: u.wish.To, Asset: u.wish.Asset.Name, Amount: amount,
	}
	begun := u.ledger.Generation()
	created, err := u.create(ctx, r)
	if err != nil {
		return
	}
	u.set(func(t *Told) { t.ReqID, t.Fresh, t.ReqAt, t.Generation = r.ReqID, 1, time.Now(), begun })
	u.ledger.did(Left)
	once, done := u.patience.Bound(ctx)
	defer done()
	if u.wish.steps == 0 || !u.move(once, r.ReqID, transfer.Init, transfer.SourcePending) || u.wish.steps == 1 {
		return
	}
	var source transfer.Ledger = u.house.Funding
	if u.wish.From == transfer.Spot {
		source = u.house.Core.Ledger()
	}
	if u.overtaken(begun) {
		return // nothing says in the copy that it may be withdrawn
	}
	if source.Withdraw(once, created.Call()).Verdict == transfer.Success {
		u.move(once, r.ReqID, transfer.SourcePending, transfer.SourceDone)
	}
}

// create stores the transfer, however often it takes. The error is that of ctx.
func (u *user) create(ctx context.Context, r transfer.Request) (transfer.Transfer, error) {
	var pauses patience.Pauses
	for {
		once, done := u.patience.Bound(ctx)
		created, err := u.house.Transfers.Create(once, r, transfer.Terms{SafetyFactor: 10})
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
	m, err := u.house.Transfers.Move(ctx, transfer.Move{ReqID: reqID, Path: path})
	return err == nil && m.Done
}
