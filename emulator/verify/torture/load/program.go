package load

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/acceptance/payroll"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Program is a Go program of the deployment's owner. It posts requests whose transactions a
// handler makes. It also reserves nonces and signs for them itself. Its requests are in the
// same [Ledger] as those by HTTP, and the same checks compare them with the chain.
type Program struct {
	App      *functions.App
	Stack    *stack.Stack
	Accounts []devchain.Account // whose submitters list the handler and the hooks among their callers
	Ledger   *Ledger
	Source   *rand.Rand
	Note     func(format string, args ...any)

	// OnlyHandlers forbids reservations: after a restore only the program knows the earlier
	// reservations and signatures.
	OnlyHandlers bool

	timeout retry.Timeout
}

// The acts of a program, as they are counted and printed.
const (
	Handled  = "handler: "
	Reserved = "reservation: "
)

// programHabits are the acts that are counted: the behaviours of a handler (see [payroll.Wage]), and
// the outcomes of a reservation.
var programHabits = []string{
	Handled + "pays", Handled + "fails", Handled + "panics", Handled + "reverts",
	Handled + "signs", Handled + "signs twice", Handled + "signs and fails",
	Reserved + "used", Reserved + "given back", Reserved + "forgotten", Reserved + "used too late",
}

const (
	programRate = 2 // requests a second
	programOpen = 8 // the maximum of open requests: a forgotten reservation blocks all nonces behind it
)

// Run posts requests until ctx ends. It follows each until it is final or within ends.
func (p *Program) Run(ctx, within context.Context) {
	retry.AtRate(ctx, programRate, func(n int) func() {
		if p.Ledger.CountUnfinished(func(in *Intent) bool { return in.ByProgram }) >= programOpen {
			return nil
		}
		key := p.Accounts[p.Source.IntN(len(p.Accounts))]
		in := &Intent{
			Submitter: eip155.NewSubmitter(p.Stack.Chain.ChainID(), key.Address), RequestID: fmt.Sprintf("program-%d", n),
			ValueWei: big.NewInt(int64(500_000_000 + n)), ByProgram: true, Habits: client.Habits{Pace: time.Second},
		}
		begin := p.drawRequest(n, key, in)
		p.Ledger.Add(in)
		c := newCaller(p.Stack, p.Ledger, in, stack.OperatorAccount)
		wait := time.Duration(p.Source.Int64N(int64(time.Second))) // else all would begin at one moment between two blocks
		return func() {
			retry.Pause(ctx, wait)
			c.Follow(within, func(ctx context.Context) { begin(ctx, c) })
		}
	})
}

// drawRequest draws the n-th request: a handler's or a reservation. Each way comes once at
// first; afterwards a way that has not happened yet is preferred, so that a short run has all.
func (p *Program) drawRequest(n int, key devchain.Account, in *Intent) (begin func(context.Context, *caller)) {
	ways := programHabits
	if p.OnlyHandlers {
		ways = slices.DeleteFunc(slices.Clone(ways), func(way string) bool { return strings.HasPrefix(way, Reserved) })
	}
	of := n
	if n >= len(ways) {
		of = p.Source.IntN(len(ways))
		done := p.Ledger.Did(ways)
		if i := slices.IndexFunc(ways, func(way string) bool { return done[way] == 0 }); i >= 0 {
			of = i
		}
	}
	if way, isReservation := strings.CutPrefix(ways[of], Reserved); isReservation {
		return func(ctx context.Context, c *caller) { p.runReservation(ctx, c, key, way) }
	}
	return p.handlerRequest(in, strings.TrimPrefix(ways[of], Handled))
}

// insist repeats the call until the answer is clear, for a minute. It never cuts a call in progress.
func (p *Program) insist(ctx context.Context, in *Intent, call func(context.Context) error, clear ...error) (err error) {
	repeating, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	retry.Await(repeating, 300*time.Millisecond, func() bool {
		once, done := p.timeout.Context(ctx)
		defer done()
		if err = call(once); err != nil {
			p.Note("program: request %s: %v", in.RequestID, err)
		}
		return err == nil || slices.ContainsFunc(clear, func(one error) bool { return errors.Is(err, one) })
	})
	return err
}

// handlerRequest makes the payroll's handler build the transaction of in.
func (p *Program) handlerRequest(in *Intent, way string) (begin func(context.Context, *caller)) {
	wage := payroll.Wage{Wei: in.ValueWei.Int64(), How: way}
	if way == "pays" {
		wage.How = ""
	}
	in.submit = func(ctx context.Context) client.Answer { return p.withNonce(ctx, in, wage) }
	return func(ctx context.Context, c *caller) {
		if c.Post(ctx); in.Answers().ID != "" {
			p.Ledger.Count(Handled + way)
		}
	}
}

// withNonce posts the request once, and returns the answer that a caller by HTTP would get.
func (p *Program) withNonce(ctx context.Context, in *Intent, wage payroll.Wage) (a client.Answer) {
	ctx, done := p.timeout.Context(ctx)
	defer done()
	a.Begun, a.Generation = time.Now(), p.Ledger.Generation()
	txID, err := p.App.WithNonce(ctx, in.Submitter, in.RequestID, "wage", wage)
	switch {
	case err == nil:
		a.Status, a.TxID = http.StatusOK, txID
	case errors.Is(err, store.ErrProtected):
		a.Status, a.Code = http.StatusConflict, "SUBMITTER_PROTECTED"
	case errors.Is(err, store.ErrRecorded):
		a.Status, a.Code = http.StatusConflict, "REQUEST_RECORDED"
	default:
		p.Note("program: request %s: %v", in.RequestID, err)
	}
	return a
}

// owner is the name under which the program reserves.
const owner = "the program"

// runReservation reserves a nonce and uses, releases or forgets it, as way says.
func (p *Program) runReservation(ctx context.Context, c *caller, key devchain.Account, way string) {
	var got functions.Reservation
	err := p.insist(ctx, c.Request, func(ctx context.Context) error {
		all, err := p.App.Allocate(ctx, c.Request.Submitter, owner, c.Request.RequestID)
		if err == nil {
			got = all[0]
			c.Request.Change(func(t *Answers) { t.ID = got.TxID })
		}
		return err
	})
	if err != nil || got.Over {
		return
	}
	p.Ledger.Count(Reserved + way)
	switch way {
	case "given back":
		_ = p.insist(ctx, c.Request, func(ctx context.Context) error {
			return p.App.MarkRecyclable(ctx, got.TxID, owner, "no longer needed")
		}, txmanager.ErrNotOwner)
	case "used too late":
		retry.Pause(ctx, time.Until(got.Until)+3*time.Second)
		p.useNonce(ctx, c, key, got)
	case "used":
		p.useNonce(ctx, c, key, got)
	}
}

// useNonce signs for the nonce and hands in the signed bytes. It sends nothing itself.
func (p *Program) useNonce(ctx context.Context, c *caller, key devchain.Account, got functions.Reservation) {
	id := new(big.Int).SetUint64(p.Stack.Chain.ChainID())
	var raw []byte
	tx, err := types.SignNewTx(key.Key, types.LatestSignerForChainID(id), &types.DynamicFeeTx{
		ChainID: id, Nonce: got.Nonce, To: &common.Address{0x0e}, Value: c.Request.ValueWei, Gas: 21_000,
		GasFeeCap: big.NewInt(50_000_000_000), GasTipCap: big.NewInt(1_000_000_000),
	})
	if err == nil {
		raw, err = tx.MarshalBinary()
	}
	if err != nil {
		p.Note("program: request %s: sign: %v", c.Request.RequestID, err)
		return
	}
	p.Note("program: request %s is signed for nonce %d: %s", c.Request.RequestID, got.Nonce, hex.EncodeToString(raw))
	use := func(ctx context.Context) error { return p.App.MarkUsed(ctx, got.TxID, owner, raw) }
	_ = p.insist(ctx, c.Request, use, txmanager.ErrNotOwner, txmanager.ErrSignedBytes)
}
