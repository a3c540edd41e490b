package acceptance

import (
	"context"
	"crypto/ecdsa"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// ownerProgram builds the program that reserves nonces, once.
var ownerProgram = sync.OnceValues(func() (string, error) {
	return stack.BuildProgram(context.Background(), filepath.Dir(acceptancetest.Server.Path), "emulator/acceptance/owner", acceptancetest.RaceFlags...)
})

// withHooks returns settings with the hooks on and a time-out that is longer than a test.
func withHooks(more ...map[string]string) map[string]string {
	hooks := map[string]string{"FENCEPOST_HOOKS_ENABLED": "true", "FENCEPOST_HOOKS_RESERVATION_TIMEOUT": "2m"}
	return withSettings(append([]map[string]string{quick, hooks}, more...)...)
}

// briefly is a time-out that a test waits for. inTime is one within which an owner's programs finish
// even on a slow machine.
var (
	briefly = map[string]string{"FENCEPOST_HOOKS_RESERVATION_TIMEOUT": "3s"}
	inTime  = map[string]string{"FENCEPOST_HOOKS_RESERVATION_TIMEOUT": "15s"}
)

// hook runs the owner's program once in a separate process, which may be killed.
func (b bench) hook(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	c := exec.CommandContext(b.ctx, must(ownerProgram())(t), args...)
	c.Env = b.Environment()
	var said strings.Builder
	c.Stderr = &said
	answer, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, said.String())
	}
	return string(answer), err
}

// hookUntilAnswered repeats the program, as an owner does that got no answer.
func (b bench) hookUntilAnswered(t *testing.T, args ...string) string {
	t.Helper()
	for tries := 1; ; tries++ {
		got, err := b.hook(t, args...)
		if err == nil {
			return got
		}
		if tries > 20 || b.ctx.Err() != nil {
			t.Fatalf("%v: never answered: %v", args, err)
		}
	}
}

func (b bench) allocate(t *testing.T, s txmanager.Submitter, owner string, requests ...string) (all []functions.Reservation) {
	t.Helper()
	must(b.DB.Exec(b.ctx, `update submitter set callers = callers || '{hooks}' where submitter = $1 and not 'hooks' = any (callers)`, s))(t)
	out := b.hookUntilAnswered(t, append([]string{"allocate", string(s), owner}, requests...)...)
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != len(requests) {
		t.Fatalf("allocate: got %s, %v; want %d reservations", out, err, len(requests))
	}
	return all
}

// inAnyForm signs a transfer of wei in type 0, 1 or 2, chosen by the nonce.
func inAnyForm(key *ecdsa.PrivateKey, chainID, n uint64, to common.Address, wei int64) ([]byte, error) {
	id, value, price := new(big.Int).SetUint64(chainID), big.NewInt(wei), big.NewInt(50_000_000_000)
	tx, err := types.SignNewTx(key, types.LatestSignerForChainID(id), [3]types.TxData{
		&types.LegacyTx{Nonce: n, To: &to, Value: value, Gas: 21_000, GasPrice: price},
		&types.AccessListTx{ChainID: id, Nonce: n, To: &to, Value: value, Gas: 21_000, GasPrice: price},
		&types.DynamicFeeTx{ChainID: id, Nonce: n, To: &to, Value: value, Gas: 21_000, GasFeeCap: price, GasTipCap: big.NewInt(1_000_000_000)},
	}[n%3])
	if err != nil {
		return nil, err
	}
	return tx.MarshalBinary()
}

// signsElsewhere returns what the owner signs for nonce n of the first submitter.
func (b bench) signsElsewhere(t *testing.T, n uint64) []byte {
	t.Helper()
	return must(inAnyForm(b.Account(b.first).Key, b.Chain.ChainID(), n, common.Address{0x0e}, 7))(t)
}

// uses marks a reservation as used with the bytes that the owner signs for it.
func (b bench) uses(t *testing.T, r functions.Reservation) {
	t.Helper()
	b.hookUntilAnswered(t, "used", r.TxID, r.Owner, hex.EncodeToString(b.signsElsewhere(t, r.Nonce)))
}

// wantFate checks how a transaction ended and at which nonce; -1: without one.
func (b bench) wantFate(t *testing.T, what, txID, end string, at int) {
	t.Helper()
	_, r := b.ask(t, stack.OperatorAccount, txID)
	got, n := r.State, -1
	if r.SubState != nil {
		got += "/" + *r.SubState
	}
	if r.Nonce != nil {
		n = int(*r.Nonce)
	}
	if got != end || n != at {
		t.Errorf("%s: got %s at nonce %d, want %s at %d (%s)", what, got, n, end, at, text(r.LastError))
	}
}

// Reservations and intents of one submitter form one sequence without a gap. Bytes that an owner hands
// in are sent, tracked and confirmed. A recycled nonce goes to the next intent, below higher allocated
// nonces.
func TestReservationsBesideIntents(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: withHooks(), Window: 4})
	s := b.Submitters()[0]
	before := b.postUntilAnswered(t, transfer(s, "before"))
	b.ends(t, map[txmanager.Submitter]int{s: 1})
	lent := b.allocate(t, s, "mover", "m-0", "m-1", "m-2")
	behind := b.postUntilAnswered(t, transfer(s, "behind them"))
	b.uses(t, lent[1]) // in another order
	if again := b.allocate(t, s, "mover", "m-0", "m-1", "m-2"); again[0].TxID != lent[0].TxID || again[1].State != txmanager.Used || again[2].Over {
		t.Errorf("asked for again: got %+v, want the same, as they are by now", again)
	}
	if _, err := b.hook(t, "allocate", string(s), "somebody else", "m-0"); err == nil {
		t.Error("asked for by somebody else: got it answered")
	}
	if _, err := b.hook(t, "recyclable", lent[1].TxID, "mover", "too late"); err == nil {
		t.Error("given back once used: got it accepted")
	}
	b.hookUntilAnswered(t, "recyclable", lent[0].TxID, "mover", "not needed")
	b.uses(t, lent[2])
	b.hookUntilAnswered(t, "recyclable", lent[0].TxID, "mover", "not needed") // as after a lost answer
	b.ends(t, map[txmanager.Submitter]int{s: 4})
	b.wantFate(t, "before them", before, "CONFIRMED", 0)
	b.wantFate(t, "what was given back", lent[0].TxID, "FAILED/CANCELLED", -1)
	b.wantFate(t, "who waited", behind, "CONFIRMED", 1)
	b.wantFate(t, "what was used", lent[1].TxID, "CONFIRMED", 2)
	b.wantFate(t, "what was used too", lent[2].TxID, "CONFIRMED", 3)
}

// H13: a placeholder consumes a reservation that is not marked in time, and a recycled nonce that no
// request uses. Later marks are refused.
func TestH13ReservationTimesOut(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: withHooks(inTime), Window: 4})
	s := b.Submitters()[0]
	lent := b.allocate(t, s, "mover", "m-0", "m-1")
	b.hookUntilAnswered(t, "recyclable", lent[1].TxID, "mover", "not needed")
	b.ends(t, map[txmanager.Submitter]int{s: 2})
	for _, r := range lent {
		b.wantFate(t, "nobody came", r.TxID, "FAILED/PLACEHOLDER", int(r.Nonce))
	}
	if out, err := b.hook(t, "used", lent[0].TxID, "mover", hex.EncodeToString(b.signsElsewhere(t, lent[0].Nonce))); err == nil || !strings.Contains(err.Error(), txmanager.ErrNotOwner.Error()) {
		t.Errorf("a late mark: got %s, %v; want it refused: %v", out, err, txmanager.ErrNotOwner)
	}
	next := b.postUntilAnswered(t, transfer(s, "next"))
	b.ends(t, map[txmanager.Submitter]int{s: 3})
	b.wantFate(t, "the next", next, "CONFIRMED", 2)
}

// An owner that sends its bytes itself and does not hand them in counts as a foreign signer: PROTECT
// opens, and the next intent loses nothing.
func TestOwnerSendsByItself(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: withHooks(inTime)})
	s := b.Submitters()[0]
	lent := b.allocate(t, s, "mover", "m-0")[0]
	behind := b.postUntilAnswered(t, transfer(s, "behind it"))
	b.useTheKey(t, lent.Nonce, 2)
	incident := b.inProtect(t, s, "TAKEN")
	b.wantFate(t, "behind it", behind, "QUEUED", -1)
	body := map[string]any{"incident": incident, "mode": "resync", "count": 1, "reason": "the mover sent it"}
	b.until(t, "resync without a name was never refused", func() bool {
		_, answer := b.release(t, s, body)
		return strings.Contains(answer, "must say for each which request")
	})
	body["requests"] = map[string]string{"0": lent.RequestID}
	b.until(t, "resync was never accepted", func() bool {
		status, _ := b.release(t, s, body)
		return status == http.StatusOK
	})
	b.finish(t)
	b.wantContiguous(t, s, 2)
	b.wantFate(t, "the reservation", lent.TxID, "CONFIRMED/RECORDED", 0)
	b.wantFate(t, "behind it", behind, "CONFIRMED", 1)
}

// hooksEpisode makes an owner's program die at a step of a hook. The same call again gets the same
// answer and leaves no unfinished work.
func hooksEpisode(t *testing.T, b bench, folder, point string) {
	s := b.Submitters()[0]
	lent := b.allocate(t, s, "mover", "m-0", "m-1")
	behind := b.postUntilAnswered(t, transfer(s, "behind them"))
	b.hookUntilAnswered(t, "recyclable", lent[0].TxID, "mover", "not needed")
	b.uses(t, lent[1])
	b.killed(t, folder, point)
	b.ends(t, map[txmanager.Submitter]int{s: 2})
	b.wantFate(t, "given back", lent[0].TxID, "FAILED/CANCELLED", -1)
	b.wantFate(t, "behind them", behind, "CONFIRMED", 0)
	b.wantFate(t, "used", lent[1].TxID, "CONFIRMED", 1)
}

// A process that dies while it recycles a nonce, sends an owner's bytes, or fills an unmarked nonce
// leaves no gap.
func TestKilledAroundReservations(t *testing.T) {
	t.Parallel()
	parallel(t, "passes on", func(t *testing.T) {
		killedInTurn(t, stack.Options{Settings: withHooks(), Window: 4}, []string{"advance.taken", "advance.looked", "advance.signed", "advance.stored", "advance.sending", "advance.sent", "advance.released"}, hooksEpisode)
	})
	parallel(t, "fills", func(t *testing.T) {
		points := []string{"advance.taken", "advance.looked", "advance.version_signed", "advance.version_stored", "advance.sending", "advance.sent", "advance.released"}
		killedInTurn(t, stack.Options{Settings: withHooks(briefly), Window: 4}, points, func(t *testing.T, b bench, folder, point string) {
			s := b.Submitters()[0]
			lent := b.allocate(t, s, "mover", "m-0", "m-1")
			behind := b.postUntilAnswered(t, transfer(s, "behind them"))
			b.killed(t, folder, point)
			b.ends(t, map[txmanager.Submitter]int{s: 3})
			for _, r := range lent {
				b.wantFate(t, "nobody came", r.TxID, "FAILED/PLACEHOLDER", int(r.Nonce))
			}
			b.wantFate(t, "behind them", behind, "CONFIRMED", 2)
		})
	})
}
