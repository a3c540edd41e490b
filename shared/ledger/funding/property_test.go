package funding_test

import (
	"context"
	"fmt"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/transfer"
)

// of returns the ledger's method for op.
func (l ledger) of(op transfer.Op) func(context.Context, transfer.Call) transfer.Outcome {
	return map[transfer.Op]func(context.Context, transfer.Call) transfer.Outcome{
		transfer.Withdraw: l.Withdraw, transfer.Deposit: l.Deposit, transfer.Refund: l.Refund,
		transfer.OutsideDeposit: l.OutsideDeposit, transfer.OutsideWithdrawal: l.OutsideWithdrawal,
	}[op]
}

// key is the key of a stored answer.
type key struct {
	req string
	op  transfer.Op
}

type stored struct {
	call    transfer.Call
	outcome transfer.Outcome
}

type place struct {
	user  int64
	asset int32
}

type balance struct {
	units  *big.Int
	status string
}

// model is a minimal Funding ledger in memory.
type model struct {
	answers  map[key]stored
	balances map[place]*balance
}

func (m *model) do(op transfer.Op, c transfer.Call) transfer.Outcome {
	k := key{c.ReqID, op}
	if s, ok := m.answers[k]; ok {
		if s.call != c {
			return transfer.Outcome{}
		}
		return s.outcome
	}
	if op == transfer.Refund {
		s, ok := m.answers[key{c.ReqID, transfer.Withdraw}]
		if !ok || s.outcome.Verdict != transfer.Success || s.call != c {
			return transfer.Outcome{}
		}
	}
	o := transfer.Outcome{Verdict: transfer.Success}
	if why := m.refuses(op, c); op != transfer.Refund && why != "" {
		o = transfer.Outcome{Verdict: transfer.Refused, Reason: why}
	}
	m.answers[k] = stored{c, o}
	if o.Verdict == transfer.Success {
		m.move(op, c)
	}
	return o
}

func (m *model) refuses(op transfer.Op, c transfer.Call) transfer.Reason {
	b, units := m.balances[place{c.UserID, c.AssetID}], new(big.Int).SetUint64(c.Units)
	switch {
	case c.Units == 0:
		return transfer.InvalidAmount
	case c.UserID <= 0:
		return transfer.InvalidUser
	case c.AssetID < fine || c.AssetID > whole:
		return transfer.InvalidAsset
	case !op.Credits():
		switch {
		case b == nil:
			return transfer.SourceAccountNotFound
		case b.status == "FROZEN":
			return transfer.AccountFrozen
		case b.status == "DISABLED":
			return transfer.AccountDisabled
		case b.units.Cmp(units) < 0:
			return transfer.InsufficientBalance
		}
	case b == nil && op == transfer.Deposit:
		return transfer.TargetAccountNotFound
	case b != nil && b.status == "DISABLED":
		return transfer.AccountDisabled
	case b != nil && new(big.Int).Add(b.units, units).BitLen() > 64:
		return transfer.Overflow
	}
	return ""
}

func (m *model) move(op transfer.Op, c transfer.Call) {
	at := place{c.UserID, c.AssetID}
	if m.balances[at] == nil {
		m.balances[at] = &balance{new(big.Int), "ACTIVE"}
	}
	change := new(big.Int).SetUint64(c.Units)
	if !op.Credits() {
		change.Neg(change)
	}
	m.balances[at].units.Add(m.balances[at].units, change)
}

// After any sequence of calls, repeated or not, the ledger has the model's answers and balances.
func TestLedgerMatchesItsModel(t *testing.T) {
	t.Parallel()
	l, run := newLedger(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		m := model{map[key]stored{}, map[place]*balance{}}
		ops := []transfer.Op{transfer.Withdraw, transfer.Deposit, transfer.Refund, transfer.OutsideDeposit, transfer.OutsideWithdrawal}
		last := map[string]transfer.Call{}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			if rapid.IntRange(0, 9).Draw(rt, "freeze") == 0 {
				m.set(rt, l, rapid.Int64Range(1, 2).Draw(rt, "of")+10*int64(run))
				continue
			}
			r := drawRequest(rt, run, rapid.IntRange(0, 7).Draw(rt, "req"), last, ops...)
			want, got := m.do(r.Op, r.Call), l.of(r.Op)(t.Context(), r.Call)
			if got.Verdict != want.Verdict || got.Reason != want.Reason {
				rt.Fatalf("%+v: got %+v, want %+v", r, got, want)
			}
		}
		m.compare(rt, l, run)
	})
}

// drawRequest is a call of the n-th request of the run by one of ops, mostly with the fields of its last one.
func drawRequest(rt *rapid.T, run, n int, last map[string]transfer.Call, ops ...transfer.Op) funding.Request {
	c := transfer.Call{
		ReqID: fmt.Sprintf("run %d, %d", run, n), UserID: rapid.Int64Range(1, 3).Draw(rt, "user") + 10*int64(run),
		AssetID: rapid.SampledFrom([]int32{fine, fine, fine, fine, whole, 50}).Draw(rt, "asset"),
		Units:   rapid.OneOf(rapid.Uint64Range(0, 9), rapid.Uint64Range(1, 9), rapid.Uint64()).Draw(rt, "units"),
	}
	if old, ok := last[c.ReqID]; ok && rapid.IntRange(0, 4).Draw(rt, "other fields") > 0 {
		c = old
	}
	last[c.ReqID] = c
	return funding.Request{Op: rapid.SampledFrom(ops).Draw(rt, "op"), Call: c}
}

// set changes the status of a user's account in the model and in the ledger.
func (m *model) set(rt *rapid.T, l ledger, user int64) {
	s := rapid.SampledFrom([]string{"ACTIVE", "FROZEN", "DISABLED"}).Draw(rt, "status")
	if b := m.balances[place{user, fine}]; b != nil {
		l.exec(`update balances_tb set status = $1 where user_id = $2 and asset_id = $3`, s, user, fine)
		b.status = s
	}
}

func (m *model) compare(rt *rapid.T, l ledger, run int) {
	var accounts int
	check.OK(rt)(l.db.DB.QueryRow(l.t.Context(), `select count(*) from balances_tb where user_id / 10 = $1`, run).Scan(&accounts))
	check.Equal(rt, "accounts", accounts, len(m.balances))
	for at, b := range m.balances {
		available, status, err := l.account(at.user, at.asset)
		check.OK(rt)(err)
		have, ok := new(big.Rat).SetString(available)
		want := new(big.Rat).SetInt(b.units)
		if at.asset == fine {
			want.Quo(want, big.NewRat(100_000_000, 1))
		}
		if !ok || have.Cmp(want) != 0 || status != b.status {
			rt.Fatalf("account %+v: got %s, %s, want %v units, %s", at, available, status, b.units, b.status)
		}
	}
}
