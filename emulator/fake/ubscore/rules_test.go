package ubscore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
)

// codeOf returns the code of the core's problem in err, or "".
func codeOf(err error) string {
	var problem *trading.ProblemError
	if errors.As(err, &problem) {
		return problem.Code
	}
	return ""
}

// A repeat gets the same answer, a refusal included, in this process and in the next. The key is (req_id,
// op), so a refund has another key than its withdrawal.
func TestH02ARepeatAnswersWhatWasAnswered(t *testing.T) {
	t.Parallel()
	r := stocked(t, ubscore.Options{SnapshotEvery: 4}, 100)
	for range 3 {
		for range 2 {
			want(t, "withdraw R, short", r.Withdraw(r.ctx, call("R", 101)), refused(transfer.InsufficientBalance))
			wantUnknown(t, "refund of R, which took nothing", r.Refund(r.ctx, call("R", 101)), wire.NoWithdrawal.Name)
			want(t, "withdraw S", r.Withdraw(r.ctx, call("S", 40)), success)
			want(t, "refund of S", r.Refund(r.ctx, call("S", 40)), success)
			want(t, "withdraw T", r.Withdraw(r.ctx, call("T", 30)), success)
			want(t, "deposit of T's id", r.Deposit(r.ctx, call("T", 5)), success)
			wantUnknown(t, "withdraw of more under T", r.Withdraw(r.ctx, call("T", 31)), wire.Contradiction.Name)
			wantUnknown(t, "refund of more than T took", r.Refund(r.ctx, call("T", 31)), wire.Contradiction.Name)
			r.wantUnits(t, 75)
		}
		r.again(t)
	}
	r.wantSum(t)
	check.Equal(t, "lines of the journal (one for each key that has an answer)", len(r.journal(t)), 6)
}

// A refund is applied whatever the account's status.
func TestH03RefundIsNeverRefused(t *testing.T) {
	t.Parallel()
	for _, status := range []string{wire.Frozen, wire.Disabled} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			r := stocked(t, ubscore.Options{}, 100)
			wantUnknown(t, "refund before the withdrawal", r.Refund(r.ctx, call("R", 60)), wire.NoWithdrawal.Name)
			wantUnknown(t, "resolve of a refund", r.Resolve(r.ctx, transfer.Refund, call("R", 60)), wire.NothingStored.Name)
			want(t, "withdraw", r.Withdraw(r.ctx, call("R", 60)), success)
			want(t, "status", r.SetStatus(r.ctx, call("status", 0), status), success)
			want(t, "refund", r.Refund(r.ctx, call("R", 60)), success)
			want(t, "resolve of what is stored", r.Resolve(r.ctx, transfer.Refund, call("R", 60)), success)
			r.wantUnits(t, 100)
		})
	}
	t.Run("full account", func(t *testing.T) {
		t.Parallel()
		r := stocked(t, ubscore.Options{}, 100)
		want(t, "withdraw", r.Withdraw(r.ctx, call("R", 60)), success)
		want(t, "fill", r.OutsideDeposit(r.ctx, call("fill", math.MaxUint64-90)), success)
		wantUnknown(t, "refund into a full account", r.Refund(r.ctx, call("R", 60)), wire.RefundOverflow.Name)
		want(t, "room", r.OutsideWithdrawal(r.ctx, call("room", 50)), success)
		want(t, "refund", r.Refund(r.ctx, call("R", 60)), success)
		r.wantUnits(t, math.MaxUint64-40)
	})
}

// Every refusal is stored: the same call is still refused when it would succeed, also by the next
// process.
func TestH03RefusalsStay(t *testing.T) {
	t.Parallel()
	r := stocked(t, ubscore.Options{SnapshotEvery: 5}, 100)
	other := func(id string, user int64, asset int32, units uint64) transfer.Call {
		c := call(id, units)
		c.UserID, c.AssetID = user, asset
		return c
	}
	withdraw, deposit := (*trading.Ledger).Withdraw, (*trading.Ledger).Deposit
	in, out := (*trading.Ledger).OutsideDeposit, (*trading.Ledger).OutsideWithdrawal
	type refusal struct {
		op     func(*trading.Ledger, context.Context, transfer.Call) transfer.Outcome
		call   transfer.Call
		reason transfer.Reason
	}
	active := []refusal{
		{withdraw, call("no amount", 0), transfer.InvalidAmount},
		{deposit, call("no amount", 0), transfer.InvalidAmount},
		{in, call("no amount", 0), transfer.InvalidAmount},
		{out, call("no amount", 0), transfer.InvalidAmount},
		{withdraw, other("no user", 0, asset, 1), transfer.InvalidUser},
		{deposit, other("no user", -1, asset, 1), transfer.InvalidUser},
		{deposit, other("no asset", user, 2, 1), transfer.InvalidAsset},
		{withdraw, other("no such asset", user, -2, 1), transfer.InvalidAsset},
		{withdraw, other("no account", 8, asset, 1), transfer.SourceAccountNotFound},
		{withdraw, call("short", 101), transfer.InsufficientBalance},
		{out, call("short", 101), transfer.InsufficientBalance},
		{deposit, call("too much", math.MaxUint64), transfer.Overflow},
	}
	frozen := []refusal{{withdraw, call("frozen", 1), transfer.AccountFrozen}}
	disabled := []refusal{
		{withdraw, call("disabled", 1), transfer.AccountDisabled},
		{deposit, call("disabled", 1), transfer.AccountDisabled},
		{in, call("disabled", 1), transfer.AccountDisabled},
	}
	wantAll := func(list []refusal) {
		t.Helper()
		for _, x := range list {
			want(t, x.call.ReqID, x.op(r.Ledger, r.ctx, x.call), refused(x.reason))
		}
	}
	wantAll(active)
	status := func(id, status string) {
		t.Helper()
		want(t, id, r.SetStatus(r.ctx, call(id, 0), status), success)
	}
	status("freeze", wire.Frozen)
	wantAll(frozen)
	want(t, "deposit into a frozen account", r.Deposit(r.ctx, call("into frozen", 1)), success)
	status("disable", wire.Disabled)
	wantAll(disabled)
	status("activate", wire.Active)
	want(t, "more money", r.OutsideDeposit(r.ctx, call("more", 1000)), success)
	want(t, "the asset", r.AddAsset(r.ctx, "asset-2", 2, 2, started), success)
	want(t, "the account", r.Deposit(r.ctx, other("account", 8, asset, 5)), success)
	for range 2 {
		wantAll(slices.Concat(active, frozen, disabled))
		r.wantUnits(t, 1101)
		r.again(t)
	}
	r.wantSum(t)
}

// A resolved operation is refused for ever, so that a late call cannot apply. A stored one stays as it
// is.
func TestH03ResolvedOperationStaysRefused(t *testing.T) {
	t.Parallel()
	r := stocked(t, ubscore.Options{}, 100)
	want(t, "withdraw", r.Withdraw(r.ctx, call("done", 10)), success)
	want(t, "resolve of what is done", r.Resolve(r.ctx, transfer.Withdraw, call("done", 10)), success)
	for range 2 {
		for _, op := range []transfer.Op{transfer.Withdraw, transfer.Deposit, transfer.OutsideDeposit, transfer.OutsideWithdrawal} {
			want(t, string(op), r.Resolve(r.ctx, op, call("given up", 10)), refused(transfer.ResolvedByOperator))
		}
		want(t, "a late withdraw", r.Withdraw(r.ctx, call("given up", 10)), refused(transfer.ResolvedByOperator))
		want(t, "a late deposit", r.Deposit(r.ctx, call("given up", 10)), refused(transfer.ResolvedByOperator))
		r.again(t)
	}
	r.wantUnits(t, 90)
}

// An operation older than the horizon, its resolve and its refund are answered as long as no key was
// forgotten. A request from the future gets no answer.
func TestH17OldOperationIsAnswered(t *testing.T) {
	t.Parallel()
	r := stocked(t, ubscore.Options{}, 100)
	old := func(words string) transfer.Call {
		c := call(words, 10)
		c.CreatedAt = time.Now().Add(-31 * 24 * time.Hour).Truncate(time.Hour)
		return c
	}
	for range 2 {
		want(t, "withdraw", r.Withdraw(r.ctx, old("R")), success)
		want(t, "refund", r.Refund(r.ctx, old("R")), success)
		want(t, "resolve", r.Resolve(r.ctx, transfer.Deposit, old("R")), refused(transfer.ResolvedByOperator))
		wantUnknown(t, "a word about what is answered", r.Record(r.ctx, transfer.Deposit, old("S"), transfer.OperatorStatement{Applied: true}), wire.NotForgotten.Name)
		r.again(t)
	}
	ahead := call("ahead", 10)
	ahead.CreatedAt = time.Now().Add(2 * time.Hour)
	wantUnknown(t, "withdraw, created in the future", r.Withdraw(r.ctx, ahead), wire.CreatedAhead.Name)
	r.wantUnits(t, 100)
	check.Equal(t, "lines of the journal", len(r.journal(t)), 4)
}

// An answer is remembered beyond the horizon until its key is forgotten. After that it can never apply
// again.
func TestH17RememberedForgottenNeverTwice(t *testing.T) {
	t.Parallel()
	r := setup(t, ubscore.Options{Horizon: 2 * time.Second, SnapshotEvery: 5})
	created := time.Now()
	at := func(id string, units uint64, created time.Time) transfer.Call {
		return transfer.Call{ReqID: id, UserID: user, AssetID: asset, Units: units, CreatedAt: created}
	}
	want(t, "asset", r.AddAsset(r.ctx, "asset", asset, 6, created), success)
	want(t, "opening", r.OutsideDeposit(r.ctx, at("opening", 1000, created)), success)
	want(t, "withdraw", r.Withdraw(r.ctx, at("R", 10, created)), success)
	want(t, "the remembered withdrawal", r.Withdraw(r.ctx, at("R", 10, created)), success)
	r.until(t, "R is forgotten", func(n int) bool {
		r.Withdraw(r.ctx, at(fmt.Sprint("filler-", n), 1, time.Now())) // brings the next snapshot nearer
		return codeOf(r.Withdraw(r.ctx, at("R", 10, created)).Err) == wire.BeyondHorizon.Name
	})
	r.again(t)
	wantUnknown(t, "the forgotten withdrawal", r.Withdraw(r.ctx, at("R", 10, created)), wire.BeyondHorizon.Name)
	wantUnknown(t, "its resolve", r.Resolve(r.ctx, transfer.Withdraw, at("R", 10, created)), wire.BeyondHorizon.Name)
	wantUnknown(t, "its refund", r.Refund(r.ctx, at("R", 10, created)), wire.BeyondHorizon.Name)
	taken, line := 0, uint64(0)
	for _, e := range r.journal(t) {
		if e.ReqID == "R" {
			taken, line = taken+1, e.Seq
		}
	}
	units, _, err := r.Balance(r.ctx, user, asset)
	check.OK(t)(err)
	for words, word := range map[string]transfer.OperatorStatement{"says the opposite": {Line: line}, "is another's": {Applied: true, Line: line - 1}, "is none": {Applied: true, Line: 1 << 40}} {
		wantUnknown(t, "by a line that "+words, r.Record(r.ctx, transfer.Withdraw, at("R", 10, created), word), wire.EvidenceDiffers.Name)
	}
	want(t, "R by its line", r.Record(r.ctx, transfer.Withdraw, at("R", 10, created), transfer.OperatorStatement{Applied: true, Line: line}), success)
	want(t, "R's deposit, by other evidence", r.Record(r.ctx, transfer.Deposit, at("R", 10, created), transfer.OperatorStatement{}), refused(transfer.ResolvedByOperator))
	for range 2 {
		want(t, "a duplicate of R", r.Withdraw(r.ctx, at("R", 10, created)), success)
		want(t, "a duplicate of its deposit", r.Deposit(r.ctx, at("R", 10, created)), refused(transfer.ResolvedByOperator))
		wantUnknown(t, "R's refund", r.Refund(r.ctx, at("R", 10, created)), wire.BeyondHorizon.Name)
		r.wantUnits(t, units.Units)
		r.again(t)
	}
	want(t, "R's refund was not applied", r.Record(r.ctx, transfer.Refund, at("R", 10, created), transfer.OperatorStatement{Line: line}), success)
	want(t, "a duplicate of it", r.Refund(r.ctx, at("R", 10, created)), success)
	r.wantUnits(t, units.Units+10)
	check.Equal(t, "lines of R", taken, 1)
	r.wantSum(t)
}

func (r *rig) until(t *testing.T, what string, holds func(n int) bool) {
	t.Helper()
	n := 0
	if !retry.Await(r.ctx, 5*time.Millisecond, func() bool { n++; return holds(n) }) {
		t.Fatalf("not in time: %s", what)
	}
}

// A caller without the secret gets no data.
func TestCallerWithoutTheSecretGetsNoData(t *testing.T) {
	t.Parallel()
	r := setup(t, ubscore.Options{})
	url := "http://" + r.process.Addr()
	for _, token := range []string{"", "Bearer ", "Bearer wrong", "Basic " + secret, secret, "Bearer  " + secret} {
		for _, path := range []string{wire.OperationsPath, wire.ResolvePath, wire.RecordPath, wire.AdjustPath, wire.StatusPath, wire.AssetsPath, wire.JournalPath, wire.BalancesPath, wire.BalancesPath + "/1/1", "/else"} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				got, _ := send(r.ctx, t, method, url+path, token, "")
				check.Equal(t, fmt.Sprintf("%s %s with %q", method, path, token), got, http.StatusUnauthorized)
			}
		}
	}
	got, _ := send(r.ctx, t, http.MethodGet, url+wire.JournalPath, "bearer "+secret, "")
	check.Equal(t, "with the secret", got, http.StatusOK)
	unauthorised := check.Value(trading.New(trading.Options{URL: url, Secret: "another secret of the tests"}))(t)
	t.Cleanup(unauthorised.Close)
	wantUnknown(t, "deposit without the secret", unauthorised.Deposit(r.ctx, call("R", 1)), "UNAUTHORIZED")
}

// A query is checked as strictly as a body.
func TestInvalidQueryIsRefused(t *testing.T) {
	t.Parallel()
	r := stocked(t, ubscore.Options{}, 100)
	url := "http://" + r.process.Addr()
	for path, want := range map[string]int{
		"/v1/journal": 200, "/v1/journal?after=1&limit=10000": 200, "/v1/journal?after=99": 200, "/v1/balances?limit=1": 200,
		"/v1/journal?limit=0": 400, "/v1/journal?limit=10001": 400, "/v1/journal?limit=-1": 400, "/v1/journal?limit=": 400, "/v1/journal?after=x": 400,
		"/v1/journal?after=1&after=2": 400, "/v1/journal?before=1": 400, "/v1/journal?After=1": 400, "/v1/journal?%zz": 400, "/v1/journal?after=1;limit=2": 400,
		"/v1/balances?limit=0": 400, "/v1/balances?at=x": 400, "/v1/balances?after=7": 400, "/v1/balances?after=7:": 400, "/v1/balances?after=7:1:1": 400,
		"/v1/balances/7/1?at=1": 400, "/v1/balances/x/1": 400, "/v1/balances/7/-1": 400, "/v1/balances/7/2147483648": 400, "/v1/balances/7": 404, "/v2/journal": 404,
	} {
		got, _ := send(r.ctx, t, http.MethodGet, url+path, "Bearer "+secret, "")
		check.Equal(t, path, got, want)
	}
}
