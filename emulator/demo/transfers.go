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
	"github.com/fencepost/fencepost/emulator/stack/steps"
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

// assets are those that are moved.
var assets = []transfer.Asset{stack.USDT, stack.BTC, stack.JPY}

// opening is the opening balance of each user by asset, on each side, in units.
var opening = map[int32]uint64{stack.USDT.ID: 500_000_000, stack.BTC.ID: 20_000_000, stack.JPY.ID: 100_000}

// atOnce is how many transfers are posted at once.
const atOnce = 16

// RunTransfers moves money between the ledgers of a running stack with transfers. On the way it kills a
// function process and the trading core. It waits for every transfer's end, and prints the sums of both
// journals. The error is nil only if they account for every unit.
func RunTransfers(ctx context.Context, s *stack.Stack, o TransferOptions, out io.Writer) (err error) {
	defer steps.Return(&err)
	openAccounts(ctx, s, o.Users, out)
	wanted := draw(o)
	began := time.Now()
	fmt.Fprintf(out, "Posting %d transfers, Funding to Trading and back, %d at a time.\n\n", len(wanted), atOnce)
	moveAll(ctx, s, wanted, out)
	awaitEnds(ctx, s, wanted, out)
	fmt.Fprintf(out, "\nAll ended after %s. Reading both journals:\n\n", time.Since(began).Round(100*time.Millisecond))
	repeatAll(ctx, s, printBooks(ctx, s, wanted, out), out)
	checkConservation(ctx, s, out)
	return nil
}

// openAccounts books the opening balances. The last user is disabled in Trading, so that the source or
// the target refuses some transfers.
func openAccounts(ctx context.Context, s *stack.Stack, users int, out io.Writer) {
	for user := range int64(users) {
		for asset, units := range opening {
			for _, side := range []transfer.AccountType{transfer.Funding, transfer.Spot} {
				steps.OK(s.Deposit(ctx, side, user+1, asset, units))
			}
		}
	}
	for asset := range opening {
		steps.OK(s.SetStatus(ctx, transfer.Spot, int64(users), asset, "DISABLED"))
	}
	fmt.Fprintf(out, "\n%d users have USDT, BTC and JPY in both ledgers; user %d may not use Trading.\n", users, users)
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
func moveAll(ctx context.Context, s *stack.Stack, all []*wanted, out io.Writer) {
	ctx, cancel := context.WithCancelCause(ctx)
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
	defer func() { cancel(nil); posting.Wait() }() // also if the watch ends the demo
	progress := func() (shown int, ended bool) {
		n := int(answered.Load())
		return min(n, len(all)-1), n == len(all) // the last tenth is shown when all have ended
	}
	watch(ctx, out, len(all), showEvery, progress,
		act{len(all) / 3, func(bar *bar) { killFunction(s, bar) }}, act{2 * len(all) / 3, func(bar *bar) { killCore(ctx, s, bar) }})
	steps.OK(context.Cause(ctx))
}

func killFunction(s *stack.Stack, bar *bar) {
	victim := s.Processes()[0]
	steps.OK(victim.Kill())
	bar.say("Killed function process %d with SIGKILL; the others and its replacement continue.", victim.PID())
}

const coreIsAway = time.Second

func killCore(ctx context.Context, s *stack.Stack, bar *bar) {
	pid := s.Core.Process().PID()
	steps.OK(s.Core.Kill())
	bar.say("Killed the trading core, process %d, with SIGKILL; it had its balances in memory only.", pid)
	retry.Pause(ctx, coreIsAway)
	steps.OK(context.Cause(ctx))
	began := time.Now()
	steps.OK(s.Core.Start(ctx))
	bar.say("Started it again as process %d: it has read its log after %s.", s.Core.Process().PID(), time.Since(began).Round(time.Millisecond))
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

func awaitEnds(ctx context.Context, s *stack.Stack, all []*wanted, out io.Writer) {
	open := slices.DeleteFunc(slices.Clone(all), func(w *wanted) bool { return w.ended })
	if len(open) > 0 {
		fmt.Fprintf(out, "%d transfers are pending: their processes were killed, or the core had not answered.\n", len(open))
	}
	for _, w := range open {
		_, err := steps.Value(s.UserClient(w.user)).WaitTransfer(ctx, w.reqID)
		steps.OK(err, "transfer ", w.CID)
		w.ended = true
	}
	newBar(out, len(all)).show(len(all))
}

// checkConservation makes the deployment check conservation over both journals.
func checkConservation(ctx context.Context, s *stack.Stack, out io.Writer) {
	report := steps.Value(steps.Value(s.Client(stack.OperatorAccount)).CheckConservation(ctx, true))
	fmt.Fprintf(out, "The deployment's own check of both journals, %d lines from their beginning: %s.\n", report.Entries, report.Result)
	if report.Result != "ok" {
		steps.OK(ErrNotBalanced)
	}
}
