package ubscore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	book "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// watched is a real core, with Funding and the transfers in a real database, and the monitor that
// checks both.
type watched struct {
	*rig
	conservation.Monitor
	db storetest.Bundle
}

// watch returns a watched core that has the asset. The asset's precision in the database is digits. Pages
// are short.
func watch(t *testing.T, digits int) *watched {
	t.Helper()
	w := &watched{rig: setup(t, ubscore.Options{}), db: storetest.New(t)}
	w.Monitor = conservation.Monitor{
		Book: book.New(w.db.DB), Funding: funding.New(w.db.DB), Mode: conservation.HaltGraded, Page: 10,
		Log: telemetry.NewLogger(t.Output(), telemetry.LevelCritical, ""), Critical: telemetry.LevelCritical,
	}
	w.connect()
	want(t, "asset", w.AddAsset(w.ctx, "asset", asset, 6, started), success)
	w.db.Run(t, `insert into assets_tb (asset_id, asset, precision, min_transfer_amount, max_transfer_amount) values ($1, 'GOLD', $2, 1, 1000000)`, asset, digits)
	return w
}

// connect makes the monitor read from the process that runs now.
func (w *watched) connect() {
	w.Trading = conservation.Numbered{Core: w.Ledger, Balances: func(ctx context.Context) (uint64, map[conservation.Account]conservation.Sum, error) {
		line, list, err := w.AllBalances(ctx)
		all := map[conservation.Account]conservation.Sum{}
		for _, b := range list {
			all[conservation.Account{UserID: b.UserID, AssetID: b.AssetID}] = conservation.Units(b.Units)
		}
		return line, all, err
	}}
}

// restart starts another process on the folder. The one before may have been killed.
func (w *watched) restart(t *testing.T, folder string) {
	t.Helper()
	w.kill(t)
	w.options.Folder = folder
	w.start(t)
	w.connect()
}

// transfer stores a transfer and moves it along the path. It returns its call.
func (w *watched) transfer(t *testing.T, number int, kind transfer.Type, units uint64, path ...transfer.State) transfer.Call {
	t.Helper()
	c := transfer.Call{ReqID: fmt.Sprintf("%026d", number), UserID: user, AssetID: asset, Units: units, CreatedAt: started}
	w.db.Run(t, `insert into transfers_tb (req_id, user_id, asset_id, precision, amount, transfer_type, source_type)
		select $1, $2, asset_id, precision, $4::bigint * 10::numeric ^ -precision, $5, $5 from assets_tb where asset_id = $3`, c.ReqID, user, asset, units, kind)
	for _, state := range path {
		w.db.Run(t, `update transfers_tb set state = $2 where req_id = $1`, c.ReqID, state)
	}
	return c
}

// check runs the monitor, which must reach a result.
func (w *watched) check(t *testing.T, full bool) conservation.Report {
	t.Helper()
	return check.Value(w.Check(w.ctx, full))(t)
}

// healthy runs the monitor, which must find nothing.
func (w *watched) healthy(t *testing.T, full bool) {
	t.Helper()
	if r := w.check(t, full); len(r.Found) > 0 {
		t.Fatalf("healthy (full: %t): got %v, want nothing", full, r.Found)
	}
}

func kinds(found []conservation.Finding) (all []conservation.Kind) {
	for _, f := range found {
		all = append(all, f.Kind)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// busy writes lines, most of which move no money.
func (w *watched) busy(t *testing.T, lines int) {
	t.Helper()
	for n := range lines {
		name := fmt.Sprint("line-", n)
		if n%4 == 0 {
			want(t, name, w.OutsideDeposit(w.ctx, call(name, 1)), success)
			continue
		}
		want(t, name, w.AddAsset(w.ctx, name, int32(100+n), 2, started), success)
	}
}

// A page continues past lines that move no money, and shows that there is more.
func TestPageContinuesPastLinesWithoutMoney(t *testing.T) {
	t.Parallel()
	w := watch(t, 6)
	w.busy(t, 40)
	_, last, err := w.Journal(w.ctx, 0, 1)
	check.OK(t)(err)
	for _, limit := range []int{1, 2, 7, 40, 41, 100} {
		pages, entries, scales := uint64(0), 0, 0
		for cursor, more := conservation.Cursor(""), true; more; pages++ {
			p := check.Value(w.Trading.Page(w.ctx, cursor, limit))(t)
			cursor, more = p.Next, p.More
			entries, scales = entries+len(p.Entries), scales+len(p.Scales)
			if !more && !strings.HasPrefix(string(cursor), fmt.Sprint(last, ":")) {
				t.Errorf("limit %d: pages end at %s, want line %d", limit, cursor, last)
			}
		}
		if want := (last + uint64(limit) - 1) / uint64(limit); pages != want || entries != 10 || scales != 31 {
			t.Errorf("limit %d: got %d pages, %d entries, %d assets; want %d, 10 and 31", limit, pages, entries, scales, want)
		}
	}
}

// A credit without a source in the core is found by the first check, full or not, anywhere in the
// journal.
func TestAnEarlyCreditIsFound(t *testing.T) {
	t.Parallel()
	for name, kindsOfRun := range map[string][]bool{"full": {true, true}, "incremental": {false, true}} {
		for _, before := range []int{0, 20} {
			t.Run(fmt.Sprint(name, " after ", before), func(t *testing.T) {
				t.Parallel()
				w := watch(t, 6)
				w.busy(t, before)
				w.healthy(t, kindsOfRun[0])
				c := w.transfer(t, 1, transfer.FundingToSpot, 500)
				want(t, "deposit", w.Deposit(w.ctx, c), success)
				for n := range 20 {
					want(t, "later", w.OutsideDeposit(w.ctx, call(fmt.Sprint("later-", n), 1)), success)
				}
				r := w.check(t, kindsOfRun[0])
				check.Same(t, "findings", kinds(r.Fresh), []conservation.Kind{conservation.CreditWithoutDebit})
				check.Equal(t, "halts", len(r.Halts), 1)
				for _, full := range kindsOfRun {
					if r := w.check(t, full); len(r.Found) != 1 || len(r.Fresh) > 0 {
						t.Errorf("again (full: %t): got %v found, %v fresh; want it standing", full, r.Found, r.Fresh)
					}
				}
			})
		}
	}
}

// A core restored from a backup has forgotten answers. The next check reports it and checks everything
// again, after any number of new lines. Balances alone do not show it: here the same amount is gone as
// before.
func TestACoreBroughtBackFromABackup(t *testing.T) {
	t.Parallel()
	for _, since := range []uint64{0, 1, 5} { // units withdrawn after the restore, one a line
		t.Run(fmt.Sprint(since, " lines since"), func(t *testing.T) {
			t.Parallel()
			w := watch(t, 6)
			money := funding.New(w.db.DB)
			for _, in := range []func(context.Context, transfer.Call) transfer.Outcome{w.OutsideDeposit, money.OutsideDeposit} {
				want(t, "in", in(w.ctx, call("in", 100)), success)
			}
			c := w.transfer(t, 1, transfer.SpotToFunding, max(1, since), transfer.SourcePending)
			w.kill(t)
			backup := filepath.Join(t.TempDir(), "backup")
			check.OK(t)(os.CopyFS(backup, os.DirFS(w.options.Folder)))
			w.restart(t, w.options.Folder)
			want(t, "withdraw", w.Withdraw(w.ctx, c), success)
			want(t, "deposit", money.Deposit(t.Context(), c), success)
			w.db.Run(t, `select move_transfer($1, '{10,20,30,40}', null)`, c.ReqID)
			w.healthy(t, false)
			w.restart(t, backup)
			for n := range since {
				want(t, "out", w.OutsideWithdrawal(w.ctx, call(fmt.Sprint("out-", n), 1)), success)
			}
			r := w.check(t, false)
			all := []conservation.Kind{conservation.CommittedIncomplete, conservation.CreditWithoutDebit, conservation.JournalWentBack}
			if diff := cmp.Diff(all, kinds(r.Fresh)); diff != "" || !r.Full || len(r.Halts) != 3 || r.Halts[0].Scope != conservation.All {
				t.Errorf("back from a backup: full %t, halts %v, findings (-want +got):\n%s", r.Full, r.Halts, diff)
			}
			again := w.check(t, false)
			if diff := cmp.Diff(all[:2], kinds(again.Found)); diff != "" || again.Full || len(again.Fresh) > 0 {
				t.Errorf("the next check: full %t, %v fresh, findings (-want +got):\n%s", again.Full, again.Fresh, diff)
			}
		})
	}
}

// An asset with different precisions is found whichever side had it first. It halts only that asset.
func TestDifferentPrecisionHaltsTheAsset(t *testing.T) {
	t.Parallel()
	w := watch(t, 6)
	want(t, "iron", w.AddAsset(w.ctx, "iron", 2, 0, started), success)
	for _, full := range []bool{false, true} {
		w.healthy(t, full)
	}
	w.db.Run(t, `insert into assets_tb (asset_id, asset, precision, min_transfer_amount, max_transfer_amount) values (2, 'IRON', 2, 1, 10), (3, 'TIN', 3, 1, 10)`)
	wantFound := func(what string, full bool, assets ...int32) {
		t.Helper()
		r := w.check(t, full)
		var got []int32
		for _, f := range r.Found {
			if got = append(got, f.Account.AssetID); f.Kind != conservation.PrecisionDiffers || f.Side != transfer.Spot {
				t.Errorf("%s: got %v, want precisions that differ", what, f)
			}
		}
		check.Same(t, fmt.Sprintf("%s (full: %t): assets", what, full), got, assets)
		for _, h := range r.Halts {
			if h.Scope != conservation.Asset || h.Account.AssetID != assets[len(assets)-1] {
				t.Errorf("%s: got %v halted, want the asset", what, h)
			}
		}
	}
	wantFound("the core knew it first", false, 2)
	w.db.Run(t, `update transfer_halt set resumed_at = clock_timestamp(), resumed_by = 'an operator', resume_reason = 'looked' where resumed_at is null`)
	want(t, "tin", w.AddAsset(w.ctx, "tin", 3, 5, started), success)
	wantFound("the database knew it first", false, 2, 3)
	wantFound("again", false, 2, 3)
	wantFound("from the beginning", true, 2, 3)
	open := 0
	if err := w.db.DB.QueryRow(t.Context(), `select count(*) from transfer_halt where resumed_at is null and scope = 'asset' and asset_id = 3`).Scan(&open); err != nil || open != 1 {
		t.Errorf("halts of the asset: got %d, %v; want one", open, err)
	}
}

// A journal whose lines all have the maximal length is read.
func TestTheLongestLinesAreRead(t *testing.T) {
	t.Parallel()
	w := watch(t, 6)
	w.Page = 0
	const lines, workers = 9900, 64 // more than fit into one answer
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for n := worker; n < lines; n += workers {
				c := call(fmt.Sprintf("%s%05d", strings.Repeat("<", 123), n), 1)
				if o := w.OutsideDeposit(w.ctx, c); o != success {
					t.Errorf("line %d: got %+v", n, o)
					return
				}
			}
		})
	}
	group.Wait()
	for _, full := range []bool{false, true} {
		if r := w.check(t, full); len(r.Found) > 0 || full && r.Entries != lines {
			t.Errorf("full %t: got %d entries, %v found; want %d, nothing", full, r.Entries, r.Found, lines)
		}
	}
	check.Equal(t, "entries of a point from the beginning", len(check.Value(w.Trading.Point(w.ctx, ""))(t).Entries), lines)
}
