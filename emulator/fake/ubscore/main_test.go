package ubscore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
)

// binary is the core, built once for all tests, with the race detector where the
// tests have it.
var binary string

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "fencepost-ubscore-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary, err = ubscore.Build(context.Background(), folder, raceFlags...)
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else if code = m.Run(); code == 0 {
		if err := errors.Join(goleak.Find(), processes.Races()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.RemoveAll(folder)
	os.Exit(code)
}

const (
	secret = "a secret of the tests"
	within = 2 * time.Minute
)

// rig is a real core with a client.
type rig struct {
	*trading.Ledger
	ctx     context.Context
	options ubscore.Options
	process *processes.Process
}

// setup starts a core in a new folder, unless the options name one.
func setup(t testing.TB, o ubscore.Options) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	if o.Folder == "" {
		o.Folder = filepath.Join(t.TempDir(), "core")
	}
	o.Binary, o.Secret = binary, secret
	r := &rig{ctx: ctx, options: o}
	r.start(t)
	t.Cleanup(func() { r.kill(t) })
	return r
}

func (r *rig) start(t testing.TB) {
	t.Helper()
	r.process = check.Value(ubscore.Start(r.ctx, r.options))(t)
	r.Ledger = client(t, "http://"+r.process.Addr())
}

func client(t testing.TB, url string) *trading.Ledger {
	t.Helper()
	l := check.Value(trading.New(trading.Options{URL: url, Secret: secret, Timeout: 20 * time.Second}))(t)
	t.Cleanup(l.Close)
	return l
}

// kill ends the process by SIGKILL.
func (r *rig) kill(t testing.TB) {
	t.Helper()
	if err := r.process.Kill(); err != nil {
		t.Error(err)
	}
	<-r.process.Done()
	r.Close()
}

// again starts another process on the same folder, without armed crash points.
func (r *rig) again(t *testing.T) {
	t.Helper()
	r.kill(t)
	r.options.CrashPoints = ""
	r.start(t)
}

// started is the default creation time of transfers.
var started = time.Now()

const (
	user  = 7
	asset = 1
)

// call returns a call with an id made of the words.
func call(words string, units uint64) transfer.Call {
	return transfer.Call{ReqID: strings.ReplaceAll(words, " ", "-"), UserID: user, AssetID: asset, Units: units, CreatedAt: started}
}

// stocked is [setup] with the asset, and units of it in the user's account.
func stocked(t *testing.T, o ubscore.Options, units uint64) *rig {
	t.Helper()
	r := setup(t, o)
	want(t, "asset", r.AddAsset(r.ctx, "asset", asset, 6, started), success)
	want(t, "opening", r.OutsideDeposit(r.ctx, call("opening", units)), success)
	return r
}

var success = transfer.Outcome{Verdict: transfer.Success}

func refused(reason transfer.Reason) transfer.Outcome {
	return transfer.Outcome{Verdict: transfer.Refused, Reason: reason}
}

func want(t *testing.T, what string, got, want transfer.Outcome) {
	t.Helper()
	check.Equal(t, what, got, want)
}

// wantUnknown checks that the result is unknown, for the reason that the code names.
func wantUnknown(t *testing.T, what string, got transfer.Outcome, code string) {
	t.Helper()
	if got.Verdict != transfer.Unknown || got.Reason != "" || codeOf(got.Err) != code {
		t.Errorf("%s: got %+v, want unknown by %s", what, got, code)
	}
}

func (r *rig) wantUnits(t *testing.T, want uint64) {
	t.Helper()
	got, _, err := r.Balance(r.ctx, user, asset)
	check.OK(t)(err)
	check.Equal(t, "balance", got.Units, want)
}

// wantSum checks that the balances are the sum of the journal.
func (r *rig) wantSum(t *testing.T) {
	t.Helper()
	seq, balances, err := r.AllBalances(r.ctx)
	check.OK(t)(err)
	sums := map[[2]int64]uint64{}
	for _, e := range r.journal(t) {
		k := [2]int64{e.UserID, int64(e.AssetID)}
		switch {
		case e.Refused != "" || e.Seq > seq:
		case e.Op.Credits():
			sums[k] += e.Units
		default:
			sums[k] -= e.Units
		}
	}
	for _, b := range balances {
		check.Equal(t, fmt.Sprintf("user %d, asset %d: units by the journal, not by the balance", b.UserID, b.AssetID), sums[[2]int64{b.UserID, int64(b.AssetID)}], b.Units)
	}
	if len(balances) == 0 {
		t.Error("no balances, which proves nothing")
	}
}

func (r *rig) journal(t *testing.T) (all []transfer.Entry) {
	t.Helper()
	for after := uint64(0); ; {
		lines, _, err := r.Journal(r.ctx, after, 50)
		check.OK(t)(err)
		if len(lines) == 0 {
			return all
		}
		for _, line := range lines {
			if after = line.Seq; wire.Moves(line.Op) {
				all = append(all, line.Entry)
			}
		}
	}
}

// send calls a path without the client. The authorization can be "".
func send(ctx context.Context, t *testing.T, method, url, authorization, body string) (status int, answer string) {
	t.Helper()
	req := check.Value(http.NewRequestWithContext(ctx, method, url, strings.NewReader(body)))(t)
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	req.Header.Set("Content-Type", "application/json")
	resp := check.Value((&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req))(t)
	defer resp.Body.Close()
	return resp.StatusCode, string(check.Value(io.ReadAll(resp.Body))(t))
}
