package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/transfer"
)

// ErrNotBalanced reports that the journals do not account for every unit.
var ErrNotBalanced = errors.New("the books do not balance")

// TransferOptions describe the demo of transfers.
type TransferOptions struct {
	Transfers int
	Users     int
	Seed      uint64 // of the random transfers
}

// TransferSettings make the rescue find the transfers of a killed process within seconds; in production it
// takes a minute.
var TransferSettings = map[string]string{
	"FENCEPOST_TRANSFER_CALL_TIMEOUT": "2s", "FENCEPOST_TRANSFER_RESCUE_AFTER": "3s",
	"FENCEPOST_TRANSFER_RETRY_FIRST": "200ms", "FENCEPOST_TRANSFER_RETRY_MOST": "2s", "FENCEPOST_DATABASE_MAX_CONNS": "8",
}

// opening is the opening balance of each user by asset, on each side, in units.
var opening = map[int32]uint64{stack.USDT.ID: 500_000_000, stack.BTC.ID: 20_000_000, stack.JPY.ID: 100_000}

// RunTransfers moves money between the ledgers of a running stack with transfers. On the way it kills a
// function process and the trading core. It waits for every transfer's end, and prints the sums of both
// journals. The error is nil only if they account for every unit.
func RunTransfers(ctx context.Context, s *stack.Stack, o TransferOptions, out io.Writer) error {
	if err := openAccounts(ctx, s, o.Users, out); err != nil {
		return err
	}
	wanted := draw(o)
	began := time.Now()
	fmt.Fprintf(out, "Posting %d transfers, Funding to Trading and back, %d at a time.\n\n", len(wanted), atOnce)
	if err := moveAll(ctx, s, wanted, out); err != nil {
		return err
	}
	if err := awaitEnds(ctx, s, wanted, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nAll ended after %s. Reading both journals:\n\n", time.Since(began).Round(100*time.Millisecond))
	before, err := printBooks(ctx, s, wanted, out)
	if err != nil {
		return err
	}
	if err := repeatAll(ctx, s, before, out); err != nil {
		return err
	}
	return checkConservation(ctx, s, out)
}

// openAccounts books the opening balances. The last user is disabled in Trading, so that the source or
// the target refuses some transfers.
func openAccounts(ctx context.Context, s *stack.Stack, users int, out io.Writer) error {
	for user := range int64(users) {
		for asset, units := range opening {
			for _, side := range []transfer.AccountType{transfer.Funding, transfer.Spot} {
				if err := s.Deposit(ctx, side, user+1, asset, units); err != nil {
					return err
				}
			}
		}
	}
	for asset := range opening {
		if err := s.SetStatus(ctx, transfer.Spot, int64(users), asset, "DISABLED"); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "\n%d users have USDT, BTC and JPY in both ledgers; user %d may not use Trading.\n", users, users)
	return nil
}

type wanted struct {
	client.TransferRequest
	user int64

	reqID string // "": no answer yet
	ended bool
}

// draw draws the transfers: one in eight asks for more than any balance.
func draw(o TransferOptions) []*wanted {
	source := rand.New(rand.NewPCG(o.Seed, 1))
	assets := []transfer.Asset{stack.USDT, stack.BTC, stack.JPY}
	all := make([]*wanted, o.Transfers)
	for i := range all {
		from, to := transfer.Funding, transfer.Spot
		if i%2 == 1 {
			from, to = to, from
		}
		asset := assets[source.IntN(len(assets))]
		units := 1 + source.Uint64N(opening[asset.ID]/10)
		if source.IntN(8) == 0 {
			units += 100 * opening[asset.ID]
		}
		all[i] = &wanted{user: 1 + source.Int64N(int64(o.Users)), TransferRequest: client.TransferRequest{
			From: string(from), To: string(to), Asset: asset.Name, Amount: transfer.FormatUnits(units, asset.Precision), CID: fmt.Sprint("demo-", i),
		}}
	}
	return all
}

// moveAll posts every transfer. One without an answer is posted again under the same cid. After a third a
// function process is killed, and after two thirds the trading core.
func moveAll(ctx context.Context, s *stack.Stack, all []*wanted, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, answered atomic.Int64
	var posting sync.WaitGroup
	for range atOnce {
		posting.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := all[i].post(ctx, s); err != nil {
					cancel(err)
					return
				}
				answered.Add(1)
			}
		})
	}
	done := make(chan struct{})
	go func() { posting.Wait(); close(done) }()
	err := watch(ctx, s, len(all), &answered, done, out)
	if err != nil {
		cancel(err)
	}
	<-done
	return errors.Join(err, context.Cause(ctx))
}

// watch shows the progress, and kills the processes.
func watch(ctx context.Context, s *stack.Stack, n int, answered *atomic.Int64, done <-chan struct{}, out io.Writer) error {
	shown := newBar(out, n)
	kills := []struct {
		at  int
		act func(context.Context, *stack.Stack, *bar) error
	}{{n / 3, killFunction}, {2 * n / 3, killCore}}
	for {
		so := int(answered.Load())
		shown.show(min(so, n-1)) // the last tenth is shown when all have ended
		if len(kills) > 0 && so >= kills[0].at {
			if err := kills[0].act(ctx, s, shown); err != nil {
				return err
			}
			kills = kills[1:]
		}
		select {
		case <-done:
			if len(kills) == 0 || ctx.Err() != nil {
				return nil
			}
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func killFunction(_ context.Context, s *stack.Stack, bar *bar) error {
	victim := s.Processes()[0]
	if err := victim.Kill(); err != nil {
		return err
	}
	bar.say("Killed function process %d with SIGKILL; the others and its replacement continue.", victim.PID())
	return nil
}

const coreIsAway = time.Second

func killCore(ctx context.Context, s *stack.Stack, bar *bar) error {
	pid := s.Core.Process().PID()
	if err := s.Core.Kill(); err != nil {
		return err
	}
	bar.say("Killed the trading core, process %d, with SIGKILL; it had its balances in memory only.", pid)
	if retry.Pause(ctx, coreIsAway); ctx.Err() != nil {
		return ctx.Err()
	}
	began := time.Now()
	if err := s.Core.Start(ctx); err != nil {
		return err
	}
	bar.say("Started it again as process %d: it has read its log after %s.", s.Core.Process().PID(), time.Since(began).Round(time.Millisecond))
	return nil
}

// post posts until the answer shows the transfer's state.
func (w *wanted) post(ctx context.Context, s *stack.Stack) error {
	user, err := s.UserClient(w.user)
	if err != nil {
		return err
	}
	for {
		got, err := user.CreateTransfer(ctx, w.TransferRequest)
		var refused *client.Problem
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			w.reqID, w.ended = got.ReqID, got.State.Final()
			return nil
		case errors.As(err, &refused) && refused.State.Final():
			w.reqID, w.ended = refused.ReqID, true
			return nil
		case !errors.Is(err, client.ErrUnknown):
			return fmt.Errorf("transfer %s: %w", w.CID, err)
		}
	}
}

func awaitEnds(ctx context.Context, s *stack.Stack, all []*wanted, out io.Writer) error {
	open := slices.DeleteFunc(slices.Clone(all), func(w *wanted) bool { return w.ended })
	if len(open) > 0 {
		fmt.Fprintf(out, "%d transfers are pending: their processes were killed, or the core had not answered.\n", len(open))
	}
	for _, w := range open {
		user, err := s.UserClient(w.user)
		if err == nil {
			_, err = user.WaitTransfer(ctx, w.reqID)
		}
		if err != nil {
			return fmt.Errorf("transfer %s: %w", w.CID, err)
		}
		w.ended = true
	}
	newBar(out, len(all)).show(len(all))
	return nil
}

// checkConservation makes the deployment check conservation over both journals.
func checkConservation(ctx context.Context, s *stack.Stack, out io.Writer) error {
	operator, err := s.Client(stack.OperatorAccount)
	if err != nil {
		return err
	}
	report, err := operator.CheckConservation(ctx, true)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "The deployment's own check of both journals, %d lines from their beginning: %s.\n", report.Entries, report.Result)
	if report.Result != "ok" {
		return ErrNotBalanced
	}
	return nil
}
