package checkers_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/emulator/checkers"
	"github.com/fencepost/fencepost/emulator/ubscore/core"
	"github.com/fencepost/fencepost/emulator/ubscore/edge"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
)

// money is a small episode between two real ledgers: every end of a transfer once.
type money struct {
	testing.TB
	storetest.Bundle
	book    *transfers.Store
	driver  *transfer.Coordinator
	funding *funding.Ledger
	trading *trading.Ledger
	lie     func(path, answer string) string // what the core's answers are turned into; nil: nothing
	ids     map[string]string                // req_ids by what became of them
	checkers.TransferEpisode
}

const (
	ann, ben = 7, 8
	coin     = 1
)

func newMoney(t testing.TB) *money {
	m := &money{TB: t, Bundle: storetest.New(t), ids: make(map[string]string)}
	quiet := slog.New(slog.DiscardHandler)
	c, err := core.Open(core.Options{Folder: filepath.Join(t.TempDir(), "core"), Log: quiet})
	m.must(err)
	const secret = "a secret of the tests"
	server := httptest.NewServer(m.lying(edge.New(c, secret)))
	t.Cleanup(func() { server.Close(); _ = c.Close() })
	m.trading, err = trading.New(trading.Options{URL: server.URL, Secret: secret})
	m.must(err)
	t.Cleanup(m.trading.Close)
	m.book, m.funding = transfers.New(m.Store), funding.New(m.DB)
	m.driver, err = transfer.New(m.book, m.book, map[transfer.AccountType]transfer.Ledger{
		transfer.Funding: m.funding, transfer.Spot: m.trading,
	}, transfer.DefaultRules(), quiet)
	m.must(err)
	m.TransferEpisode = checkers.TransferEpisode{Database: m.URL, Core: m.trading, Settled: true}
	m.play()
	return m
}

func (m *money) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// lying serves what the core answers, or what m makes of it.
func (m *money) lying(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.lie == nil {
			h.ServeHTTP(w, r)
			return
		}
		kept := httptest.NewRecorder()
		h.ServeHTTP(kept, r)
		w.Header().Set("Content-Type", kept.Header().Get("Content-Type"))
		w.WriteHeader(kept.Code)
		_, _ = io.Copy(w, bytes.NewBufferString(m.lie(r.URL.Path, kept.Body.String())))
	})
}

// play has ann with 100 on both sides and ben in Trading alone.
func (m *money) play() {
	m.must(m.book.PutAsset(m.Context(), transfer.Asset{ID: coin, Name: "COIN", Precision: 2, MinUnits: 1, MaxUnits: 1000, Active: true, Enabled: true}))
	m.applied(m.trading.AddAsset(m.Context(), "asset", coin, 2, time.Now()))
	m.applied(m.funding.OutsideDeposit(m.Context(), m.call("in-1", ann, 100)))
	m.applied(m.trading.OutsideDeposit(m.Context(), m.call("in-2", ann, 100)))
	m.applied(m.trading.OutsideDeposit(m.Context(), m.call("in-3", ben, 100)))
	m.applied(m.trading.OutsideWithdrawal(m.Context(), m.call("out-1", ben, 1)))
	m.drive("there", ann, transfer.Funding, 40, transfer.Committed)
	m.drive("back", ann, transfer.Spot, 30, transfer.Committed)
	m.drive("failed", ann, transfer.Funding, 500, transfer.Failed)
	m.drive("rolled back", ben, transfer.Spot, 20, transfer.RolledBack)
	m.accept("cancelled", ann, transfer.Funding, 5)
	_, err := m.driver.Cancel(m.Context(), transfer.Order{ReqID: m.ids["cancelled"], By: "op", Reason: "a test"})
	m.must(err)
}

func (m *money) call(reqID string, user int64, units uint64) transfer.Call {
	return transfer.Call{ReqID: reqID, UserID: user, AssetID: coin, Units: units, CreatedAt: time.Now().Truncate(time.Microsecond)}
}

func (m *money) applied(o transfer.Outcome) {
	m.Helper()
	if o.Verdict != transfer.Success {
		m.Fatalf("an operation: got %+v, want success", o)
	}
}

// accept stores a transfer and leaves it in INIT.
func (m *money) accept(name string, user int64, from transfer.AccountType, units uint64) {
	m.Helper()
	to := transfer.Spot
	if from == to {
		to = transfer.Funding
	}
	amount, _ := transfer.ParseAmount(transfer.FormatUnits(units, 2))
	m.ids[name] = ulid.Make().String()
	_, err := m.book.Create(m.Context(), transfer.Request{ReqID: m.ids[name], UserID: user, From: from, To: to, Asset: "COIN", Amount: amount},
		transfer.Terms{SafetyFactor: 1})
	m.must(err)
}

func (m *money) drive(name string, user int64, from transfer.AccountType, units uint64, want transfer.State) {
	m.Helper()
	m.accept(name, user, from, units)
	if got, err := m.driver.Drive(m.Context(), m.ids[name]); err != nil || got.State != want {
		m.Fatalf("%s: got %s, %v; want %s", name, got.State, err, want)
	}
}

// of is what the ledgers are told of the transfer.
func (m *money) of(name string) transfer.Call {
	m.Helper()
	t, err := m.book.Load(m.Context(), m.ids[name])
	m.must(err)
	return t.Call()
}

func (m *money) move(name string, path ...transfer.State) {
	m.Helper()
	moved, err := m.book.Move(m.Context(), transfer.Move{ReqID: m.ids[name], Path: path})
	if err != nil || !moved.Done {
		m.Fatalf("move %s: got %+v, %v; want it done", name, moved, err)
	}
}

// forge changes rows past every trigger and key.
func (m *money) forge(statement string, args ...any) {
	m.Helper()
	tx, err := m.DB.Begin(m.Context())
	m.must(err)
	_, err = tx.Exec(m.Context(), `set local session_replication_role = replica`)
	m.must(err)
	tag, err := tx.Exec(m.Context(), statement, args...)
	if err != nil || (tag.Update() || tag.Insert() || tag.Delete()) && tag.RowsAffected() == 0 {
		m.Fatalf("%s: got %v, %v; want rows changed", statement, tag, err)
	}
	m.must(tx.Commit(m.Context()))
}

func (m *money) check() []checkers.Violation {
	m.Helper()
	all, err := checkers.CheckTransfers(m.Context(), m.TransferEpisode)
	m.must(err)
	return all
}

// moneySeeds are bugs, each put into an episode in which all is right.
var moneySeeds = []struct {
	bug   string
	plant func(*money)
	want  []string // the checkers that report it
	says  string   // part of what the first of them says
}{
	{"a unit is stolen from Funding", func(m *money) {
		m.forge(`update balances_tb set available = available - 0.01 where user_id = $1`, ann)
	}, []string{"books", "conserved"}, "FUNDING says 89 units"},
	{"Trading has a unit that nobody brought", func(m *money) {
		m.lie = func(path, answer string) string {
			if path != "/v1/balances" {
				return answer
			}
			return strings.Replace(answer, `"units":"99"`, `"units":"100"`, 1)
		}
	}, []string{"books", "conserved"}, "SPOT says 100 units"},
	{"a unit moves between the sides, and no journal says so", func(m *money) {
		m.forge(`update balances_tb set available = available + 0.01 where user_id = $1`, ann)
		m.lie = func(path, answer string) string {
			if path != "/v1/balances" {
				return answer
			}
			return strings.Replace(answer, `"units":"110"`, `"units":"109"`, 1)
		}
	}, []string{"books"}, "and its journal"},

	{"what was refused is deposited", func(m *money) { m.applied(m.trading.Deposit(m.Context(), m.of("failed"))) },
		[]string{"conserved", "credit-implies-debit", "ends-as-journaled"}, "came from outside"},
	{"what is not withdrawn yet is deposited", func(m *money) {
		m.accept("early", ann, transfer.Funding, 3)
		m.applied(m.trading.Deposit(m.Context(), m.of("early")))
		m.Settled = false
	}, []string{"credit-implies-debit"}, "a deposit by SPOT without a withdrawal"},
	{"what has arrived is refunded too", func(m *money) { m.applied(m.funding.Refund(m.Context(), m.of("there"))) },
		[]string{"conserved", "credit-implies-debit", "ends-as-journaled"}, "came from outside"},

	{"a transfer is answered twice", func(m *money) {
		m.forge(`alter table transfer_operations drop constraint one_operation_per_request`)
		m.forge(`
insert into transfer_operations (req_id, op_type, result, reason, user_id, asset_id, units)
select req_id, op_type, result, reason, user_id, asset_id, units from transfer_operations where req_id = $1`, m.ids["failed"])
	}, []string{"once"}, "2 answers to its withdraw"},
	{"a ledger is asked for a transfer that nobody asked for", func(m *money) {
		m.trading.Withdraw(m.Context(), m.call(ulid.Make().String(), ann, 900))
	}, []string{"its-transfer"}, "does not exist"},
	{"another amount is withdrawn than was asked for", func(m *money) {
		m.forge(`update transfer_operations set units = 41 where req_id = $1`, m.ids["failed"])
	}, []string{"its-transfer"}, "41 units"},
	{"the wrong ledger is asked", func(m *money) { m.trading.Withdraw(m.Context(), m.of("cancelled")) },
		[]string{"conserved", "ends-as-journaled", "its-transfer"}, "came from outside"},

	{"a transfer is COMMITTED that was never begun", func(m *money) { m.restate("cancelled", transfer.Committed, 0, 10, 20, 30, 40) },
		[]string{"ends-as-journaled"}, "it is COMMITTED, and withdraw: false"},
	{"a transfer has FAILED that was withdrawn", func(m *money) {
		m.restate("there", transfer.Failed, 0, -10)
		m.forge(`update transfers_tb set error_message = 'EXPIRED' where req_id = $1`, m.ids["there"])
	}, []string{"ends-as-journaled"}, "it is FAILED, and withdraw: true"},
	{"a transfer fails for what no ledger has said", func(m *money) {
		m.forge(`update transfers_tb set error_message = 'ACCOUNT_FROZEN' where req_id = $1`, m.ids["failed"])
	}, []string{"refusal-is-stored"}, "[INSUFFICIENT_BALANCE]"},
	{"money is given back though the target has refused nothing", func(m *money) {
		m.forge(`delete from transfer_operations where req_id = $1 and op_type = 'deposit'`, m.ids["rolled back"])
	}, []string{"refusal-is-stored"}, "journal's refusal of its deposit is []"},

	{"an end changes", func(m *money) { m.restate("there", transfer.Committed, 0, 10, 20, 30, 40, 30, 40) },
		[]string{"legal-states"}, "after it was COMMITTED, which is an end"},
	{"a step is left out", func(m *money) { m.restate("there", transfer.Committed, 0, 10, 30, 40) },
		[]string{"legal-states"}, "SOURCE_PENDING to TARGET_PENDING, which no transition allows"},
	{"the row is not where its history ends", func(m *money) { m.restate("there", transfer.Committed, 0, 10, 20, 30) },
		[]string{"legal-states"}, "ends with TARGET_PENDING"},
	{"a transfer is left", func(m *money) { m.accept("left", ann, transfer.Funding, 3) },
		[]string{"ended"}, "it is still INIT"},
	{"money is left in flight", func(m *money) {
		m.accept("left", ann, transfer.Funding, 3)
		m.move("left", 0, 10)
		m.applied(m.funding.Withdraw(m.Context(), m.of("left")))
		m.move("left", 10, 20, 30)
	}, []string{"conserved", "ended"}, "there are 197"},
}

// restate gives the transfer a state and a history.
func (m *money) restate(name string, state transfer.State, history ...transfer.State) {
	m.Helper()
	m.forge(`delete from transfer_history where transfer_id = (select transfer_id from transfers_tb where req_id = $1)`, m.ids[name])
	var from *transfer.State
	for _, s := range history {
		m.forge(`
insert into transfer_history (transfer_id, from_state, state, retry_count)
select transfer_id, $2, $3, 0 from transfers_tb where req_id = $1`, m.ids[name], from, s)
		from = &s
	}
	m.forge(`update transfers_tb set state = $2, error_message = case when $2::smallint < 0 then error_message end where req_id = $1`, m.ids[name], state)
}

// Each bug is found, by the checkers that are for it and no other.
func TestTransferCheckersFindTheirBugs(t *testing.T) {
	t.Parallel()
	for _, s := range moneySeeds {
		t.Run(s.bug, func(t *testing.T) {
			t.Parallel()
			m := newMoney(t)
			s.plant(m)
			all := m.check()
			var by []string
			for _, v := range all {
				by = append(by, v.Checker)
			}
			slices.Sort(by)
			if by = slices.Compact(by); !slices.Equal(by, s.want) || len(all) > 0 && !strings.Contains(checkers.Report(all), s.says) {
				t.Errorf("got\n%swant it from %v, and %q", checkers.Report(all), s.want, s.says)
			}
		})
	}
}

// Every checker is proven by a bug that it finds. What conserved finds, a checker of
// the parts always finds too: it adds them up.
func TestEveryTransferCheckerHasASeed(t *testing.T) {
	t.Parallel()
	alone, proven := make(map[string]bool), make(map[string]bool)
	for _, s := range moneySeeds {
		for _, name := range s.want {
			proven[name] = true
			alone[name] = alone[name] || len(s.want) == 1
		}
	}
	for _, c := range checkers.Transfers() {
		if !proven[c.Name] || !alone[c.Name] && c.Name != "conserved" {
			t.Errorf("checker %s: got no seeded bug that it alone reports, want one", c.Name)
		}
		delete(proven, c.Name)
	}
	if len(proven) > 0 {
		t.Errorf("seeds for %v: got no such checkers", proven)
	}
}

// What is right is not reported, whatever is under way.
func TestNoFalseAlarmOfTransfers(t *testing.T) {
	t.Parallel()
	for what, play := range map[string]func(*money){
		"everything has ended": func(*money) {},
		"a transfer in every state, its call answered or not": func(m *money) {
			m.Settled = false
			m.accept("init", ann, transfer.Funding, 1)
			for _, from := range []transfer.AccountType{transfer.Funding, transfer.Spot} {
				source, target := transfer.Ledger(m.funding), transfer.Ledger(m.trading)
				if from == transfer.Spot {
					source, target = target, source
				}
				for n, asked := range []bool{false, true} {
					name := string(from) + []string{"", " asked"}[n]
					m.accept("source "+name, ann, from, 1)
					m.move("source "+name, 0, 10)
					m.accept("target "+name, ann, from, 1)
					m.move("target "+name, 0, 10)
					m.applied(source.Withdraw(m.Context(), m.of("target "+name)))
					m.move("target "+name, 10, 20, 30)
					if asked {
						m.applied(source.Withdraw(m.Context(), m.of("source "+name)))
						m.applied(target.Deposit(m.Context(), m.of("target "+name)))
					}
				}
			}
		},
		"somebody else's money is gone": func(m *money) {
			m.Users = []int64{ben}
			m.forge(`update balances_tb set available = available - 0.01 where user_id = $1`, ann)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			m := newMoney(t)
			play(m)
			if all := m.check(); len(all) > 0 {
				t.Errorf("got\n%swant no violation", checkers.Report(all))
			}
		})
	}
}

// What the journals say in sum is what there is.
func TestTotalsAndHoldings(t *testing.T) {
	t.Parallel()
	m := newMoney(t)
	evidence, err := checkers.GatherTransfers(t.Context(), m.TransferEpisode)
	m.must(err)
	balances := map[transfer.AccountType]string{}
	for _, total := range evidence.Totals() {
		balances[total.Side] = total.Expected().String() + " " + total.Balance.String()
	}
	if got, want := balances, map[transfer.AccountType]string{transfer.Funding: "90 90", transfer.Spot: "209 209"}; len(got) != 2 || got[transfer.Funding] != want[transfer.Funding] || got[transfer.Spot] != want[transfer.Spot] {
		t.Errorf("totals: got %v, want %v", got, want)
	}
	for _, h := range evidence.Holdings() {
		want := map[int64]string{ann: "90 110 200", ben: "0 99 99"}[h.UserID]
		if got := h.Funding.String() + " " + h.Trading.String() + " " + h.Outside.String(); got != want {
			t.Errorf("user %d: got %s, want %s", h.UserID, got, want)
		}
	}
	if ends := evidence.Ends(); ends[transfer.Committed] != 2 || ends[transfer.Failed] != 2 || ends[transfer.RolledBack] != 1 {
		t.Errorf("ends: got %v, want 2 COMMITTED, 2 FAILED, 1 ROLLED_BACK", ends)
	}
}

// An episode that cannot be read is an error, and no verdict.
func TestUnreadableTransfers(t *testing.T) {
	t.Parallel()
	m := newMoney(t)
	e := m.TransferEpisode
	e.Database = "postgres://127.0.0.1:1/none"
	if all, err := checkers.CheckTransfers(t.Context(), e); err == nil {
		t.Errorf("no database: got %d violations and no error, want an error", len(all))
	}
	m.lie = func(string, string) string { return "{}" }
	if all, err := checkers.CheckTransfers(t.Context(), m.TransferEpisode); err == nil {
		t.Errorf("no core: got %d violations and no error, want an error", len(all))
	}
}
