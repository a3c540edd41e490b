package transfers_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// spot is a Spot ledger that accepts everything.
type spot struct{}

func (spot) Withdraw(context.Context, transfer.Call) transfer.Outcome { return success }
func (spot) Deposit(context.Context, transfer.Call) transfer.Outcome  { return success }
func (spot) Refund(context.Context, transfer.Call) transfer.Outcome   { return success }
func (spot) Resolve(context.Context, transfer.Op, transfer.Call) transfer.Outcome {
	return success
}

var success = transfer.Outcome{Verdict: transfer.Success}

// cpuOfPostgres is the processor time of the cluster's sessions, also of those that ended, in
// hundredths of a second.
func cpuOfPostgres(b *testing.B, db *pgxpool.Pool) (sum int64) {
	var session int
	check.OK(b)(0, db.QueryRow(b.Context(), `select pg_backend_pid()`).Scan(&session))
	postmaster := statOf(fmt.Sprint(session))[1]
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range all {
		if f := statOf(filepath.Base(process)); f[1] == postmaster {
			sum += f[11] + f[12]
		}
	}
	ended := statOf(fmt.Sprint(postmaster))
	return sum + ended[13] + ended[14]
}

// statOf is the numbers of a process after its name, as proc(5) has them from the state on.
func statOf(pid string) (all [20]int64) {
	text, _ := os.ReadFile("/proc/" + pid + "/stat")
	for i, field := range strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) {
		if i < len(all) {
			all[i], _ = strconv.ParseInt(field, 10, 64)
		}
	}
	return all
}

// BenchmarkTransfers measures transfers from Funding to a Spot ledger without a cost, on a Postgres
// that syncs each commit: per second, and their SQL round trips.
func BenchmarkTransfers(b *testing.B) {
	cluster := check.Value(pgcluster.Start(b.Context(), pgcluster.Options{Fsync: true, SharedBuffersMB: 512}))(b)
	b.Cleanup(func() { _ = cluster.Stop() })
	for _, c := range []struct{ callers, users int }{{1, 200}, {32, 200}, {32, 1}, {128, 200}} {
		b.Run(fmt.Sprintf("callers-%d/users-%d", c.callers, c.users), func(b *testing.B) {
			db := storetest.NewIn(b, cluster)
			options := storetest.Options(db.URL, storetest.Rules)
			options.MaxConns = 4
			s := storetest.Open(b, options)
			book := transfers.New(s)
			ledger := funding.NewInLane(s.Pool(), book.Lane())
			check.OK(b)(book.PutAsset(b.Context(), transfer.Asset{ID: 1, Name: "USDT", Precision: 6, MinUnits: 1, MaxUnits: 1e12, Active: true, Enabled: true}))
			for user := range c.users {
				o := ledger.OutsideDeposit(b.Context(), transfer.Call{ReqID: fmt.Sprint("funds-", user), UserID: int64(user + 1), AssetID: 1, Units: 1e15})
				check.Equal(b, "deposit", o, success)
			}
			all := map[transfer.AccountType]transfer.Ledger{transfer.Funding: ledger, transfer.Spot: spot{}}
			coordinator := check.Value(transfer.New(book, book, all, transfer.DefaultRules(), slog.New(slog.DiscardHandler)))(b)
			amount, _ := transfer.ParseAmount("1.5")
			ctx := telemetry.WithMeter(b.Context())
			var next atomic.Int64
			done := make(chan error, c.callers)
			before := cpuOfPostgres(b, db.DB)
			var own, ownAfter syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &own)
			b.ResetTimer()
			for range c.callers {
				go func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						got, err := coordinator.Submit(ctx, transfer.Request{
							ReqID: ulid.Make().String(), CID: fmt.Sprint("c-", n), UserID: n%int64(c.users) + 1,
							From: transfer.Funding, To: transfer.Spot, Asset: "USDT", Amount: amount,
						}, transfer.Terms{SafetyFactor: 10})
						if err != nil || got.State != transfer.Committed {
							done <- fmt.Errorf("transfer %d: got %s, %s, %w", n, got.State, got.LastUnknown, err)
							return
						}
					}
					done <- nil
				}()
			}
			for range c.callers {
				if err := <-done; err != nil {
					b.Error(err)
				}
			}
			b.StopTimer()
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ownAfter)
			b.ReportMetric(float64(cpuOfPostgres(b, db.DB)-before)*1e4/float64(b.N), "pg-us/op")
			b.ReportMetric(float64(ownAfter.Utime.Nano()+ownAfter.Stime.Nano()-own.Utime.Nano()-own.Stime.Nano())/1e3/float64(b.N), "go-us/op")
			cost := telemetry.MeterFrom(ctx).Cost()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "transfers/s")
			b.ReportMetric(float64(cost.SQLRoundTrips)/float64(b.N), "trips/op")
			b.ReportMetric(float64(cost.Commits)/float64(b.N), "commits/op")
		})
	}
}
