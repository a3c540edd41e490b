package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/proxy/http/ubsproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers"
	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/emulator/verify/torture/load"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// shortFlags returns the flags of a run of a few seconds, in which most kinds of fault come.
func shortFlags(t *testing.T, seed uint64) flags {
	t.Helper()
	f, err := parse([]string{"--minutes", "0.1", "--submitters", "4", "-json", filepath.Join(t.TempDir(), "figures.json")})
	if err != nil {
		t.Fatal(err)
	}
	f.seed, f.server, f.core = seed, binary, core
	return f
}

// tamper opens and closes PROTECT without a cause. It changes a confirmed transaction to a placeholder, gives
// another one a requestId that no caller has posted, and changes one published event. Only the tables' owner can do so.
func tamper(ctx context.Context, e *episode) {
	steps.Value(e.db.Exec(ctx, `
		insert into protect_incident (submitter, incident, evidence, closed_at, closed_by, mode, reason)
		values ($1, 99, '{}', clock_timestamp(), 'op', 'resume', 'nothing was wrong')`, e.env.Submitters()[0]))
	steps.Value(e.db.Exec(ctx, `
		alter table managed_tx disable trigger user;
		update managed_tx set state = 'FAILED', sub_state = 'PLACEHOLDER'
		 where tx_id = (select tx_id from managed_tx where state = 'CONFIRMED' order by seq limit 1);
		update managed_tx set request_id = 'nobody''s'
		 where tx_id = (select tx_id from managed_tx where state = 'CONFIRMED' and caller <> 'transfer' order by seq limit 1);
		alter table event disable trigger user;
		update event set type = 'TxTold' where position = 1`))
}

// addLostCall records a deposit call that never arrives at the core: its late copy would apply.
func (e *episode) addLostCall(ctx context.Context) {
	e.env.Core.Proxy.Arm(ubsproxy.Fault{Kind: ubsproxy.Refuse, UserID: 2})
	functions := steps.Value(trading.New(trading.Options{URL: e.env.Core.Proxy.URL(), Secret: e.env.Core.Secret, Timeout: time.Second}))
	defer functions.Close()
	call := transfer.Call{ReqID: "stray", UserID: 2, AssetID: 1, Units: 3, CreatedAt: time.Now().Truncate(time.Microsecond)}
	if o := functions.Deposit(ctx, call); o.Verdict != transfer.Unknown {
		steps.Stopf("a stray call: got %v, want no answer", o)
	}
}

// runPassed makes a run, which must pass, and returns its output.
func runPassed(t *testing.T, f flags, look func(context.Context, *episode)) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), f, &out, look); err != nil || !strings.Contains(out.String(), fmt.Sprintf("PASSED: seed %d", f.seed)) {
		t.Fatalf("run: got %v, want it passed; it printed:\n%s", err, &out)
	}
	return out.String()
}

// runTampered makes a run with tamper, which must fail, and returns its output.
func runTampered(t *testing.T, f flags, tamper func(context.Context, *episode)) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), f, &out, tamper); !errors.Is(err, errVerdict) {
		t.Fatalf("a run that was tampered with: got %v, want %v; it printed:\n%s", err, errVerdict, &out)
	}
	return out.String()
}

// restoredFlags returns the flags of a short run in which the database is lost.
func restoredFlags(t *testing.T, seed uint64) flags {
	t.Helper()
	f := shortFlags(t, seed)
	f.transfers, f.restores, f.minutes = 0, 1, 0.25
	return f
}

// A run without transfers has no trading core and passes, also if the database is lost and restored
// from its backup. The chain has three nodes here.
func TestRunWithARestoreAndWithoutTransfersPasses(t *testing.T) {
	t.Parallel()
	f := restoredFlags(t, 17)
	f.nodes = 3
	if out := runPassed(t, f, nil); !strings.Contains(out, "its backup of") || strings.Contains(out, "core") {
		t.Errorf("a run with a restore printed, without a core:\n%s", out)
	}
}

// Transfers pass a run in which the database is lost: the operators follow the runbook, and
// every payout is paid once or given back once.
func TestTransfersGoOnAcrossARestore(t *testing.T) {
	t.Parallel()
	f := restoredFlags(t, 20)
	f.transfers = 4
	if out := runPassed(t, f, nil); !strings.Contains(out, "its backup of") || !strings.Contains(out, "AFTER A RESTORE") {
		t.Errorf("a run with transfers and a restore printed:\n%s", out)
	}
}

// A row that differs from the chain and from its caller's answers is found. Stolen money is found by
// the deployment's check, the journals, and the users' answers. A call that a ledger did not store is
// found by the repetition of every call. The run fails and keeps its logs and tables.
//
// A restore excuses only lost rows. A request carried out twice is found. So is a row from before the
// backup that differs from the chain, a payout paid twice, a deleted withdrawal and a deleted refund.
func TestTamperedRowsAndMoneyAreFoundInSpiteOfARestore(t *testing.T) {
	t.Parallel()
	f := restoredFlags(t, 21)
	f.transfers = 4
	wants := []string{
		"the chain has it 2 times succeeded", "which is bound to nobody", "one-effect: eip155", "legal-history: eip155",
		"same-txid: eip155", "told-true: eip155", "events-whole: eip155", "events-told: eip155",
		"the chain has 2 payments of", "paid-or-refunded: user", "books: user", "ends-as-journaled: user", "protect-for-cause: eip155",
		"books: user 1", "conserved: user 1", "moved-as-told: user 1", "conserved-all-along: transfers", `"kind":"BALANCE_DIFFERS"`,
		"late-duplicates: transfers", "was not, and is: trading",
		"FAILED: seed 21", "./scripts/torture --seed 21",
	}
	var kept string
	out := runTampered(t, f, func(ctx context.Context, e *episode) {
		kept = e.folder.path
		wants = append(append(wants, kept), e.loseLines(ctx)...)
		steps.Value(e.db.Exec(ctx, `update balances_tb set available = available - 0.01 where user_id = 1 and asset_id = 1`))
		e.addLostCall(ctx)
		e.payAgain(ctx)
		e.doAgain(ctx)
		tamper(ctx, e)
	})
	for _, want := range wants {
		if !strings.Contains(out, want) {
			t.Errorf("it printed no %q:\n%s", want, out)
		}
	}
	for _, name := range []string{"managed_tx.csv", "tx_history.csv", "functions.log", "torture.log"} {
		if info, err := os.Stat(filepath.Join(kept, name)); err != nil || info.Size() == 0 {
			t.Errorf("kept %s: got %v, want it with something in it", name, err)
		}
	}
}

// loseLines deletes the withdrawal of the first paid payout, and the refund of the first one
// given back. It returns the violations that must be found.
func (e *episode) loseLines(ctx context.Context) (wants []string) {
	for _, one := range []struct {
		state transfer.State
		op    transfer.Op
		want  string
	}{{transfer.Committed, transfer.Withdraw, "withdrawn 0 times"}, {transfer.RolledBack, transfer.Refund, "refunded 0 times"}} {
		var reqID string
		err := e.db.QueryRow(ctx, `select req_id from transfers_tb where transfer_type = 3 and state = $1 order by transfer_id limit 1`, one.state).Scan(&reqID)
		if errors.Is(err, pgx.ErrNoRows) && one.state == transfer.RolledBack {
			continue
		}
		steps.OK(err)
		steps.Value(e.db.Exec(ctx, `alter table transfer_operations disable trigger user`))
		steps.Value(e.db.Exec(ctx, `delete from transfer_operations where req_id = $1 and op_type = $2`, reqID, one.op))
		wants = append(wants, one.want)
	}
	return wants
}

// payAgain repeats a payment of a COMMITTED payout without the deployment.
func (e *episode) payAgain(ctx context.Context) {
	var hash string
	steps.OK(e.db.QueryRow(ctx, `
select m.tx_hash
  from transfers_tb t
  join managed_tx m on m.submitter = t.payout_submitter and m.request_id = t.req_id
 where t.transfer_type = 3 and t.state = $1 and m.tx_hash is not null
 order by t.transfer_id desc limit 1`, transfer.Committed).Scan(&hash))
	client := steps.Value(ethclient.DialContext(ctx, e.env.Chain.URL()))
	defer client.Close()
	paid, _, err := client.TransactionByHash(ctx, common.HexToHash(hash))
	steps.OK(err)
	e.sendPast(ctx, e.env.PayerAccount(), paid.To(), paid.Value(), paid.Data(), paid.Gas())
}

// doAgain repeats the last confirmed request without the deployment.
func (e *episode) doAgain(ctx context.Context) {
	key := devchain.DevAccounts(1)[0]
	s := eip155.NewSubmitter(e.env.Chain.ChainID(), key.Address)
	var value *big.Int
	for _, in := range e.load.Ledger.Requests() {
		if answers := in.Answers(); in.Submitter == s && answers.End != nil && answers.End.State == txmanager.Confirmed {
			value = in.ValueWei
		}
	}
	e.sendPast(ctx, key, &common.Address{1}, value, nil, 21_000)
}

// sendPast sends a transaction of the key directly to the node, and waits until it is mined.
func (e *episode) sendPast(ctx context.Context, key devchain.Account, to *common.Address, value *big.Int, data []byte, gas uint64) {
	client := steps.Value(ethclient.DialContext(ctx, e.env.Chain.URL()))
	defer client.Close()
	n := steps.Value(client.PendingNonceAt(ctx, common.Address(eip155.MustBytes(key.Address))))
	id := new(big.Int).SetUint64(e.env.Chain.ChainID())
	tx := steps.Value(types.SignNewTx(key.Key, types.LatestSignerForChainID(id), &types.DynamicFeeTx{
		ChainID: id, Nonce: n, To: to, Value: value, Data: data, Gas: gas, GasFeeCap: big.NewInt(1e12), GasTipCap: big.NewInt(1e10),
	}))
	steps.OK(client.SendTransaction(ctx, tx))
	retry.Await(ctx, 100*time.Millisecond, func() bool {
		_, err := client.TransactionReceipt(ctx, tx.Hash())
		return err == nil
	})
	steps.OK(ctx.Err())
}

// An interrupted run ends soon and without a verdict.
func TestInterruptedRunEndsWithoutVerdict(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	out := &watcher{want: "Up after", then: interrupt}
	err := run(ctx, shortFlags(t, 13), out, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: got %v, want %v", err, context.Canceled)
	}
	if text := out.text.String(); strings.Contains(text, "PASSED") || strings.Contains(text, "FAILED") {
		t.Errorf("interrupted: got a verdict:\n%s", text)
	}
}

// watcher is a writer that calls a function once a text was written.
type watcher struct {
	text bytes.Buffer
	want string
	then func()
}

func (w *watcher) Write(p []byte) (int, error) {
	w.text.Write(p)
	if strings.Contains(w.text.String(), w.want) {
		w.then()
	}
	return len(p), nil
}

// A run that is long enough fails if a kind of fault never came.
func TestLongRunFailsWithoutEachKind(t *testing.T) {
	t.Parallel()
	f := figures{
		Faults: map[string]int{"a": 1, "b": 0}, Callers: map[string]int{"c": 0}, CrashPoints: map[string]int{"p": 0},
		Operators: map[string]int{load.Decides + "wait": 1, load.Decides + "replace": 0, load.Resyncs: 2},
	}
	f.Transfers = &transferFigures{Users: map[string]int{"d": 0, "e": 1}, Operators: map[string]int{"f": 0}}
	if got := (&episode{flags: flags{minutes: 2.9, restores: 2}}).missingKinds(f); len(got) > 0 {
		t.Errorf("missing after 2.9 minutes with 2 restores: got %q, want nothing asked for", got)
	}
	for minutes, want := range map[float64]string{0.9: "", 1: "b, c, d", 19: "b, c, d", 20: "STUCK decided: replace, b, c, d, f, p"} {
		e := &episode{flags: flags{minutes: minutes}}
		if got := strings.Join(e.missingKinds(f), ", "); got != want {
			t.Errorf("missing after %v minutes: got %q, want %q", minutes, got, want)
		}
	}
}

// Invalid flags are refused before anything starts.
func TestInvalidFlagsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--minutes", "0"}, {"--submitters", "2"}, {"-window", "0"}, {"--rate", "0"}, {"--transfers", "-1"}, {"--every", "1ms"}, {"--nodes", "0"}, {"--set", "gasbump.enabled"}, {"more"}, {"--sead", "1"}} {
		if err := realMain(t.Context(), args, &bytes.Buffer{}); err == nil {
			t.Errorf("%v: got no error", args)
		}
	}
	f, err := parse([]string{"-seed", "7", "--minutes", "20"})
	if want := "./scripts/torture --seed 7 --minutes 20 --submitters 8 --window 8 --rate 5 --transfers 4 --every 1.5s"; err != nil || f.command() != want {
		t.Errorf("command: got %q, %v; want %q", f.command(), err, want)
	}
	f, err = parse([]string{"-seed", "7", "--nodes", "3", "--set", "events.mode=log", "--set", "rpc.maxLag=2"})
	if want := " --nodes 3 --set 'FENCEPOST_EVENTS_MODE=log' --set 'FENCEPOST_RPC_MAX_LAG=2'"; err != nil || !strings.HasSuffix(f.command(), want) || f.eventsOn() {
		t.Errorf("command: got %q, %v, events on: %t; want it to end with %q, and none", f.command(), err, f.eventsOn(), want)
	}
}

// Go starts the last test of a package first, or as the second. So the longest ones are here.

// A core that does not start again is found. Here its log has lost an answered record.
func TestDamagedCoreIsFound(t *testing.T) {
	t.Parallel()
	f := shortFlags(t, 15)
	f.minutes = 0.05
	out := runTampered(t, f, func(_ context.Context, e *episode) {
		steps.OK(e.env.Core.Kill())
		logs := steps.Value(filepath.Glob(filepath.Join(e.env.Core.Folder(), "wal-*.log")))
		if len(logs) == 0 {
			steps.Stopf("the core has no log")
		}
		steps.OK(os.Truncate(logs[len(logs)-1], 200))
	})
	if want := "core-recovers: transfers"; !strings.Contains(out, want) {
		t.Errorf("it printed no %q:\n%s", want, out)
	}
}

// A run of 30 seconds, with the race detector in the function servers, passes and leaves no files
// behind. scripts/torture makes longer ones.
func TestShortRunPasses(t *testing.T) {
	t.Parallel()
	f := shortFlags(t, 11)
	var err error
	if f.server, err = stack.BuildProgram(t.Context(), t.TempDir(), "emulator/acceptance/payroll/server", "-race"); err != nil {
		t.Fatal(err)
	}
	f.minutes = 0.5
	var kept string
	runPassed(t, f, func(_ context.Context, e *episode) { kept = e.folder.path })
	if _, err := os.Stat(kept); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder %s after a good end: got %v, want it gone", kept, err)
	}
	if err := processes.Races(); err != nil {
		t.Error(err)
	}
	var figures struct {
		Seed      uint64
		Passed    bool
		Confirmed int
		Checks    []struct{ Name string }
	}
	text, err := os.ReadFile(f.json)
	if err != nil || json.Unmarshal(text, &figures) != nil {
		t.Fatalf("figures: got %s, %v", text, err)
	}
	if want := len(checkers.All()) + 4 + 2 + len(money.All()) + 6; figures.Seed != 11 || !figures.Passed || figures.Confirmed == 0 || len(figures.Checks) != want {
		t.Errorf("figures: got %+v, want seed 11, passed, some confirmed and %d checks", figures, want)
	}
}
