package ubsproxy_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/edge"
	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/transfer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "a secret of the tests"

// rig is a core with 100 units of user 7, and a client behind the proxy.
type rig struct {
	*ubsproxy.Proxy
	direct, through *trading.Ledger
}

const short = 200 * time.Millisecond

func setup(t *testing.T) *rig {
	t.Helper()
	c := check.Value(core.Open(core.Options{Folder: filepath.Join(t.TempDir(), "core"), Log: slog.New(slog.DiscardHandler)}))(t)
	server := httptest.NewServer(edge.New(c, secret))
	p := check.Value(ubsproxy.Start(ubsproxy.Options{Target: strings.TrimPrefix(server.URL, "http://"), Keep: true}))(t)
	r := &rig{p, client(t, server.URL, time.Minute), client(t, p.URL(), short)}
	t.Cleanup(func() {
		check.OK(t)(p.Close())
		server.Close()
		check.OK(t)(c.Close())
	})
	for _, o := range []transfer.Outcome{
		r.direct.AddAsset(t.Context(), "asset", 1, 6, began), r.direct.OutsideDeposit(t.Context(), call(7, "in", 100)),
		r.direct.OutsideDeposit(t.Context(), call(8, "in-8", 100)),
	} {
		want(t, "opening", o, transfer.Success)
	}
	return r
}

func client(t *testing.T, url string, timeout time.Duration) *trading.Ledger {
	t.Helper()
	l := check.Value(trading.New(trading.Options{URL: url, Secret: secret, Timeout: timeout}))(t)
	t.Cleanup(l.Close)
	return l
}

var began = time.Now().Truncate(time.Microsecond)

func call(user int64, reqID string, units uint64) transfer.Call {
	return transfer.Call{ReqID: reqID, UserID: user, AssetID: 1, Units: units, CreatedAt: began}
}

func want(t *testing.T, what string, got transfer.Outcome, want transfer.Verdict) {
	t.Helper()
	if got.Verdict != want {
		t.Errorf("%s: got %+v, want %s", what, got, want)
	}
}

func (r *rig) wantUnits(t *testing.T, what string, units uint64) {
	t.Helper()
	if b, _, err := r.direct.Balance(t.Context(), 7, 1); err != nil || b.Units != units {
		t.Errorf("%s: got %d units, %v; want %d", what, b.Units, err, units)
	}
}

// Without a fault a call passes unchanged, and is recorded if it moves money.
func TestCallPassesAndIsRecorded(t *testing.T) {
	t.Parallel()
	r := setup(t)
	want(t, "withdraw", r.through.Withdraw(t.Context(), call(7, "a", 60)), transfer.Success)
	want(t, "too much", r.through.Withdraw(t.Context(), call(7, "b", 60)), transfer.Refused)
	if b, exists, err := r.through.Balance(t.Context(), 7, 1); err != nil || !exists || b.Units != 40 {
		t.Errorf("balance through the proxy: got %+v, %t, %v; want 40", b, exists, err)
	}
	calls := r.Calls(nil)
	if len(calls) != 2 || calls[0].Number != 1 || calls[0].Operation.ReqID != "a" || calls[0].Status != http.StatusOK ||
		calls[1].Operation.Op != transfer.Withdraw || !strings.Contains(string(calls[1].Answer), "INSUFFICIENT_BALANCE") {
		t.Fatalf("calls: got %+v, want both withdrawals and their answers", calls)
	}
	for _, c := range calls {
		status, answer, err := r.Replay(t.Context(), c, secret)
		if err != nil || status != c.Status || string(answer) != string(c.Answer) {
			t.Errorf("replayed: got %d %s, %v; want %d %s", status, answer, err, c.Status, c.Answer)
		}
	}
	r.wantUnits(t, "replayed", 40)
	check.Equal(t, "calls after replaying (those that arrived)", len(r.Calls(nil)), 2)
}

// Each fault leaves the caller without an answer, and the core with or without the call.
func TestEachFaultLeavesNoAnswer(t *testing.T) {
	t.Parallel()
	for kind, c := range map[ubsproxy.Kind]struct {
		verdict transfer.Verdict
		left    uint64
	}{
		ubsproxy.Refuse: {transfer.Unknown, 101}, ubsproxy.LoseAnswer: {transfer.Unknown, 40}, ubsproxy.Hang: {transfer.Unknown, 101},
		ubsproxy.HoldAnswer: {transfer.Unknown, 40}, ubsproxy.Duplicate: {transfer.Success, 40}, ubsproxy.Late: {transfer.Unknown, 101},
		ubsproxy.Unavailable: {transfer.Unknown, 101}, ubsproxy.CutAnswer: {transfer.Unknown, 40},
	} {
		t.Run(fmt.Sprint(int(kind)), func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			disarm := r.Arm(ubsproxy.Fault{Kind: kind, Op: transfer.Withdraw, UserID: 7})
			want(t, "another user", r.through.Withdraw(t.Context(), call(8, "e", 1)), transfer.Success)
			want(t, "another operation", r.through.Deposit(t.Context(), call(7, "d", 1)), transfer.Success)
			want(t, "struck", r.through.Withdraw(t.Context(), call(7, "a", 61)), c.verdict)
			r.wantUnits(t, "struck", c.left)
			if n := r.Struck(kind); n < 1 || n > 2 { // net/http can repeat the request on a closed kept connection
				t.Errorf("struck: got %d, want one, or one and its repetition", n)
			}
			disarm()
			want(t, "disarmed", r.through.Withdraw(t.Context(), call(7, "a", 61)), transfer.Success)
			r.wantUnits(t, "asked again", 40)
		})
	}
}

// A fault with Times strikes so many calls.
func TestFaultStrikesTimesCalls(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Arm(ubsproxy.Fault{Kind: ubsproxy.Unavailable, Times: 2})
	for n, verdict := range []transfer.Verdict{transfer.Unknown, transfer.Unknown, transfer.Success} {
		want(t, fmt.Sprint("call ", n), r.through.Withdraw(t.Context(), call(7, "a", 1)), verdict)
	}
}

// A late call reaches the core once, with its delivery. A user's calls are delivered separately, the
// last first.
func TestLateCallArrivesWithDeliver(t *testing.T) {
	t.Parallel()
	r := setup(t)
	disarm := r.Arm(ubsproxy.Fault{Kind: ubsproxy.Late})
	for _, c := range []transfer.Call{call(7, "a", 70), call(7, "b", 60), call(8, "c", 1)} {
		want(t, "late", r.through.Withdraw(t.Context(), c), transfer.Unknown)
	}
	disarm()
	for _, n := range []int{2, 0} {
		check.Equal(t, "delivered", r.Deliver(t.Context(), 7), n)
	}
	r.wantUnits(t, "the last went first", 40)
	check.Equal(t, "delivered for everybody (the other user's)", r.Deliver(t.Context(), 0), 1)
}

// Without a core every connection is closed. After SetTarget calls go to the other core.
func TestCallsGoToTheTarget(t *testing.T) {
	t.Parallel()
	r, other := setup(t), setup(t)
	r.SetTarget("")
	want(t, "no core", r.through.Withdraw(t.Context(), call(7, "a", 60)), transfer.Unknown)
	r.SetTarget(strings.TrimPrefix(other.Proxy.URL(), "http://"))
	want(t, "another core", r.through.Withdraw(t.Context(), call(7, "a", 60)), transfer.Success)
	other.wantUnits(t, "another core", 40)
	r.wantUnits(t, "the first core", 100)
}

// Close ends a call that hangs.
func TestCloseEndsHangingCalls(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Arm(ubsproxy.Fault{Kind: ubsproxy.Hang})
	patient := client(t, r.URL(), time.Minute)
	got := make(chan transfer.Outcome, 1)
	go func() { got <- patient.Withdraw(context.WithoutCancel(t.Context()), call(7, "a", 1)) }()
	for tick := time.Tick(time.Millisecond); r.Struck(ubsproxy.Hang) == 0; {
		<-tick
	}
	check.OK(t)(r.Close())
	want(t, "cut", <-got, transfer.Unknown)
}
