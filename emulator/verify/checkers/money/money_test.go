package money_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/edge"
	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/emulator/verify/checkers/promise/promisetest"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
)

// bench is a small episode between two real ledgers. It contains every end of a transfer once.
type bench struct {
	testing.TB
	storetest.Bundle
	book    *transfers.Store
	driver  *transfer.Coordinator
	funding *funding.Ledger
	trading *trading.Ledger
	lie     func(path, answer string) string // replaces the core's answers; nil: they are unchanged
	ids     map[string]string                // req_ids by the name of the transfer's end
	money.Run
}

const (
	ann, ben = 7, 8
	coin     = 1
)

func setup(t testing.TB) *bench {
	b := &bench{TB: t, Bundle: storetest.New(t), ids: make(map[string]string)}
	quiet := slog.New(slog.DiscardHandler)
	c, err := core.Open(core.Options{Folder: filepath.Join(t.TempDir(), "core"), Log: quiet})
	check.OK(b)(err)
	const secret = "a secret of the tests"
	server := httptest.NewServer(b.lying(edge.New(c, secret)))
	t.Cleanup(func() { server.Close(); _ = c.Close() })
	b.trading, err = trading.New(trading.Options{URL: server.URL, Secret: secret})
	check.OK(b)(err)
	t.Cleanup(b.trading.Close)
	b.book, b.funding = transfers.New(b.Store), funding.New(b.DB)
	b.driver, err = transfer.New(b.book, b.book, map[transfer.AccountType]transfer.Ledger{
		transfer.Funding: b.funding, transfer.Spot: b.trading,
	}, transfer.DefaultRules(), quiet)
	check.OK(b)(err)
	b.Run = money.Run{Database: b.URL, Core: b.trading, Settled: true}
	b.play()
	return b
}

// lying serves the core's answers as b.lie changes them.
func (b *bench) lying(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.lie == nil {
			h.ServeHTTP(w, r)
			return
		}
		kept := httptest.NewRecorder()
		h.ServeHTTP(kept, r)
		w.Header().Set("Content-Type", kept.Header().Get("Content-Type"))
		w.WriteHeader(kept.Code)
		_, _ = io.Copy(w, bytes.NewBufferString(b.lie(r.URL.Path, kept.Body.String())))
	})
}

// lieOfBalances makes the core tell other units in its balances.
func (b *bench) lieOfBalances(units, others string) {
	b.lie = func(path, answer string) string {
		if path != "/v1/balances" {
			return answer
		}
		return strings.Replace(answer, units, others, 1)
	}
}

// play gives ann 100 on both sides and ben 100 in Trading alone, and makes their transfers.
func (b *bench) play() {
	check.OK(b)(b.book.PutAsset(b.Context(), transfer.Asset{ID: coin, Name: "COIN", Precision: 2, MinUnits: 1, MaxUnits: 1000, Active: true, Enabled: true}))
	b.applied(b.trading.AddAsset(b.Context(), "asset", coin, 2, time.Now()))
	b.applied(b.funding.OutsideDeposit(b.Context(), b.call("in-1", ann, 100)))
	b.applied(b.trading.OutsideDeposit(b.Context(), b.call("in-2", ann, 100)))
	b.applied(b.trading.OutsideDeposit(b.Context(), b.call("in-3", ben, 100)))
	b.applied(b.trading.OutsideWithdrawal(b.Context(), b.call("out-1", ben, 1)))
	b.drive("there", ann, transfer.Funding, 40, transfer.Committed)
	b.drive("back", ann, transfer.Spot, 30, transfer.Committed)
	b.drive("failed", ann, transfer.Funding, 500, transfer.Failed)
	b.drive("rolled back", ben, transfer.Spot, 20, transfer.RolledBack)
	b.accept("cancelled", ann, transfer.Funding, 5)
	check.OK(b)(b.driver.Cancel(b.Context(), transfer.RequestedAction{ReqID: b.ids["cancelled"], By: "op", Reason: "a test"}))
}

func (b *bench) call(reqID string, user int64, units uint64) transfer.Call {
	return transfer.Call{ReqID: reqID, UserID: user, AssetID: coin, Units: units, CreatedAt: time.Now().Truncate(time.Microsecond)}
}

func (b *bench) applied(o transfer.Outcome) {
	b.Helper()
	if o.Verdict != transfer.Success {
		b.Fatalf("an operation: got %+v, want success", o)
	}
}

// accept stores a transfer and leaves it in INIT.
func (b *bench) accept(name string, user int64, from transfer.AccountType, units uint64) {
	b.Helper()
	to := transfer.Spot
	if from == to {
		to = transfer.Funding
	}
	amount, _ := transfer.ParseAmount(transfer.FormatUnits(units, 2))
	b.ids[name] = ulid.Make().String()
	check.OK(b)(b.book.Create(b.Context(), transfer.Request{ReqID: b.ids[name], UserID: user, From: from, To: to, Asset: "COIN", Amount: amount},
		transfer.Terms{SafetyFactor: 1}))
}

func (b *bench) drive(name string, user int64, from transfer.AccountType, units uint64, want transfer.State) {
	b.Helper()
	b.accept(name, user, from, units)
	if got, err := b.driver.Drive(b.Context(), b.ids[name]); err != nil || got.State != want {
		b.Fatalf("%s: got %s, %v; want %s", name, got.State, err, want)
	}
}

// of returns the call by which the ledgers learn of the transfer.
func (b *bench) of(name string) transfer.Call {
	b.Helper()
	return check.Value(b.book.Load(b.Context(), b.ids[name]))(b).Call()
}

func (b *bench) move(name string, path ...transfer.State) {
	b.Helper()
	moved, err := b.book.Move(b.Context(), transfer.Transition{ReqID: b.ids[name], Path: path})
	if err != nil || !moved.Done {
		b.Fatalf("move %s: got %+v, %v; want it done", name, moved, err)
	}
}

// forge changes rows past every trigger and key.
func (b *bench) forge(statement string, args ...any) {
	b.Helper()
	tx := check.Value(b.DB.Begin(b.Context()))(b)
	defer func() { _ = tx.Rollback(b.Context()) }()
	check.OK(b)(tx.Exec(b.Context(), `set local session_replication_role = replica`))
	tag, err := tx.Exec(b.Context(), statement, args...)
	if err != nil || (tag.Update() || tag.Insert() || tag.Delete()) && tag.RowsAffected() == 0 {
		b.Fatalf("%s: got %v, %v; want rows changed", statement, tag, err)
	}
	check.OK(b)(tx.Commit(b.Context()))
}

func (b *bench) check() []money.Violation {
	b.Helper()
	return check.Value(money.Check(b.Context(), b.Run))(b)
}

// seeds are bugs, each put into a correct episode.
var seeds = []struct {
	bug   string
	plant func(*bench)
	want  []string // the checkers that report it
	says  string   // part of the report
}{
	{"a unit is stolen from Funding", func(b *bench) {
		b.forge(`update balances_tb set available = available - 0.01 where user_id = $1`, ann)
	}, []string{"books", "conserved"}, "FUNDING says 89 units"},
	{"Trading has a unit that nobody brought", func(b *bench) { b.lieOfBalances(`"units":"99"`, `"units":"100"`) },
		[]string{"books", "conserved"}, "SPOT says 100 units"},
	{"a unit moves between the sides, and no journal says so", func(b *bench) {
		b.forge(`update balances_tb set available = available + 0.01 where user_id = $1`, ann)
		b.lieOfBalances(`"units":"110"`, `"units":"109"`)
	}, []string{"books"}, "and its journal"},

	{"what was refused is deposited", func(b *bench) { b.applied(b.trading.Deposit(b.Context(), b.of("failed"))) },
		[]string{"conserved", "credit-implies-debit", "ends-as-journaled"}, "came from outside"},
	{"what is not withdrawn yet is deposited", func(b *bench) {
		b.accept("early", ann, transfer.Funding, 3)
		b.applied(b.trading.Deposit(b.Context(), b.of("early")))
		b.Settled = false
	}, []string{"credit-implies-debit"}, "a deposit by SPOT without a withdrawal"},
	{"what has arrived is refunded too", func(b *bench) { b.applied(b.funding.Refund(b.Context(), b.of("there"))) },
		[]string{"conserved", "credit-implies-debit", "ends-as-journaled"}, "came from outside"},

	{"a transfer is answered twice", func(b *bench) {
		b.forge(`alter table transfer_operations drop constraint one_operation_per_request`)
		b.forge(`
insert into transfer_operations (req_id, op_type, result, reason, user_id, asset_id, units)
select req_id, op_type, result, reason, user_id, asset_id, units from transfer_operations where req_id = $1`, b.ids["failed"])
	}, []string{"once"}, "2 answers to its withdraw"},
	{"a ledger is asked for a transfer that nobody asked for", func(b *bench) {
		b.trading.Withdraw(b.Context(), b.call(ulid.Make().String(), ann, 900))
	}, []string{"its-transfer"}, "does not exist"},
	{"another amount is withdrawn than was asked for", func(b *bench) {
		b.forge(`update transfer_operations set units = 41 where req_id = $1`, b.ids["failed"])
	}, []string{"its-transfer"}, "41 units"},
	{"the wrong ledger is asked", func(b *bench) { b.trading.Withdraw(b.Context(), b.of("cancelled")) },
		[]string{"conserved", "ends-as-journaled", "its-transfer"}, "came from outside"},

	{"a transfer is COMMITTED that was never begun", func(b *bench) { b.restate("cancelled", transfer.Committed, 0, 10, 20, 30, 40) },
		[]string{"ends-as-journaled"}, "it is COMMITTED, and withdraw: false"},
	{"a transfer has FAILED that was withdrawn", func(b *bench) { b.restate("there", transfer.Failed, 0, -10) }, []string{"ends-as-journaled"}, "it is FAILED, and withdraw: true"},
	{"a transfer fails for what no ledger has said", func(b *bench) {
		b.forge(`update transfers_tb set error_message = 'ACCOUNT_FROZEN' where req_id = $1`, b.ids["failed"])
	}, []string{"refusal-is-stored"}, "[INSUFFICIENT_BALANCE]"},
	{"money is given back though the target has refused nothing", func(b *bench) {
		b.forge(`delete from transfer_operations where req_id = $1 and op_type = 'deposit'`, b.ids["rolled back"])
	}, []string{"refusal-is-stored"}, "journal's refusal of its deposit is []"},

	{"an end changes", func(b *bench) { b.restate("there", transfer.Committed, 0, 10, 20, 30, 40, 30, 40) },
		[]string{"legal-states"}, "after it was COMMITTED, which is an end"},
	{"a step is left out", func(b *bench) { b.restate("there", transfer.Committed, 0, 10, 30, 40) },
		[]string{"legal-states"}, "SOURCE_PENDING to TARGET_PENDING, which no transition allows"},
	{"the row is not where its history ends", func(b *bench) { b.restate("there", transfer.Committed, 0, 10, 20, 30) },
		[]string{"legal-states"}, "ends with TARGET_PENDING"},
	{"a transfer is left", func(b *bench) { b.accept("left", ann, transfer.Funding, 3) },
		[]string{"ended"}, "it is still INIT"},
	{"money is left in flight", func(b *bench) {
		b.accept("left", ann, transfer.Funding, 3)
		b.move("left", 0, 10)
		b.applied(b.funding.Withdraw(b.Context(), b.of("left")))
		b.move("left", 10, 20, 30)
	}, []string{"conserved", "ended"}, "there are 197"},
}

// restate sets the transfer's state and history.
func (b *bench) restate(name string, state transfer.State, history ...transfer.State) {
	b.Helper()
	b.forge(`delete from transfer_history where transfer_id = (select transfer_id from transfers_tb where req_id = $1)`, b.ids[name])
	var from *transfer.State
	for _, s := range history {
		b.forge(`
insert into transfer_history (transfer_id, from_state, state, retry_count)
select transfer_id, $2, $3, 0 from transfers_tb where req_id = $1`, b.ids[name], from, s)
		from = &s
	}
	b.forge(`update transfers_tb set state = $2, error_message = case when $2::smallint < 0 then coalesce(error_message, 'EXPIRED') end where req_id = $1`, b.ids[name], state)
}

// adjusted removes a unit of ann's 90 in Funding past the journal, and makes the adjustment that
// corrects it.
func (b *bench) adjusted(op transfer.Op) {
	b.Helper()
	b.forge(`update balances_tb set available = available - 0.01 where user_id = $1`, ann)
	var problem *string
	check.OK(b)(b.DB.QueryRow(b.Context(), `select funding_adjust(1, $1, $2, $3, 1, 89)`, op, ann, coin).Scan(&problem))
	if problem != nil {
		b.Fatalf("adjust: got %s, want it done", *problem)
	}
}

// Each bug is found by the checkers meant for it and by no other.
func TestEachBugIsFound(t *testing.T) {
	t.Parallel()
	for _, s := range seeds {
		t.Run(s.bug, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s.plant(b)
			promisetest.WantReported(t, b.check(), s.want, s.says)
		})
	}
}

// Every checker has a bug that it finds. A bug that conserved finds is always also found by a checker
// of the parts, since conserved adds them up.
func TestEveryCheckerHasASeed(t *testing.T) {
	t.Parallel()
	var bugs [][]string
	for _, s := range seeds {
		bugs = append(bugs, s.want)
	}
	promisetest.EachAlone(t, money.All(), bugs, "conserved")
}

// A correct episode is not reported, whichever work is under way.
func TestNoFalseAlarm(t *testing.T) {
	t.Parallel()
	for what, play := range map[string]func(*bench){
		"everything has ended": func(*bench) {},
		"a transfer in every state, its call answered or not": func(b *bench) {
			b.Settled = false
			b.accept("init", ann, transfer.Funding, 1)
			for _, from := range []transfer.AccountType{transfer.Funding, transfer.Spot} {
				source, target := transfer.Ledger(b.funding), transfer.Ledger(b.trading)
				if from == transfer.Spot {
					source, target = target, source
				}
				for n, asked := range []bool{false, true} {
					name := string(from) + []string{"", " asked"}[n]
					b.accept("source "+name, ann, from, 1)
					b.move("source "+name, 0, 10)
					b.accept("target "+name, ann, from, 1)
					b.move("target "+name, 0, 10)
					b.applied(source.Withdraw(b.Context(), b.of("target "+name)))
					b.move("target "+name, 10, 20, 30)
					if asked {
						b.applied(source.Withdraw(b.Context(), b.of("source "+name)))
						b.applied(target.Deposit(b.Context(), b.of("target "+name)))
					}
				}
			}
		},
		"a balance was moved back to its journal's sum": func(b *bench) { b.adjusted(transfer.BalanceCredit) },
		"a journal was moved to its account's balance":  func(b *bench) { b.adjusted(transfer.JournalDebit) },
		"somebody else's money is gone": func(b *bench) {
			b.Users = []int64{ben}
			b.forge(`update balances_tb set available = available - 0.01 where user_id = $1`, ann)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			play(b)
			if all := b.check(); len(all) > 0 {
				t.Errorf("got\n%swant no violation", money.Report(all))
			}
		})
	}
}

// The journals' sums equal the balances.
func TestTotalsAndBalances(t *testing.T) {
	t.Parallel()
	b := setup(t)
	evidence := check.Value(money.ReadEvidence(t.Context(), b.Run))(t)
	balances := map[transfer.AccountType]string{}
	for _, total := range evidence.Totals() {
		balances[total.Side] = total.Expected().String() + " " + total.Balance.String()
	}
	check.Same(t, "totals", balances, map[transfer.AccountType]string{transfer.Funding: "90 90", transfer.Spot: "209 209"})
	for at, want := range map[money.Account]string{
		{Side: transfer.Funding, UserID: ann, AssetID: coin}: "90", {Side: transfer.Spot, UserID: ann, AssetID: coin}: "110",
		{Side: transfer.Funding, UserID: ben, AssetID: coin}: "0", {Side: transfer.Spot, UserID: ben, AssetID: coin}: "99",
	} {
		check.Equal(t, fmt.Sprint(at), evidence.Balance(at).String(), want)
	}
	outside := map[int64]string{}
	for at, units := range evidence.Outside() {
		outside[at.UserID] = units.String()
	}
	check.Same(t, "from outside", outside, map[int64]string{ann: "200", ben: "99"})
	if ends := evidence.Ends(); ends[transfer.Committed] != 2 || ends[transfer.Failed] != 2 || ends[transfer.RolledBack] != 1 {
		t.Errorf("ends: got %v, want 2 COMMITTED, 2 FAILED, 1 ROLLED_BACK", ends)
	}
}

// An unreadable episode is an error and no verdict.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := b.Run
	e.Database = "postgres://127.0.0.1:1/none"
	if all, err := money.Check(t.Context(), e); err == nil {
		t.Errorf("no database: got %d violations and no error, want an error", len(all))
	}
	b.lie = func(string, string) string { return "nothing of the kind" }
	if all, err := money.Check(t.Context(), b.Run); err == nil {
		t.Errorf("no core: got %d violations and no error, want an error", len(all))
	}
}
