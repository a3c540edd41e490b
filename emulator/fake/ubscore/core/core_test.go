package core_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/transfer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

func open(t testing.TB, o core.Options) *core.Core {
	t.Helper()
	o.Log = quiet
	c := check.Value(core.Open(o))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// stocked returns a core with an asset and 1,000 units of it for user 1.
func stocked(t testing.TB, o core.Options) *core.Core {
	t.Helper()
	c := open(t, o)
	now := book.MicrosOf(time.Now())
	if o.Now != nil {
		now = book.MicrosOf(o.Now())
	}
	do(t, c, book.Request{Kind: book.AddAsset, ReqID: "asset", AssetID: 1, Precision: 6, CreatedAt: now}, "")
	do(t, c, book.Request{Kind: book.OutsideDeposit, ReqID: "opening", UserID: 1, AssetID: 1, Units: 1000, CreatedAt: now}, "")
	return c
}

func do(t testing.TB, c *core.Core, r book.Request, want transfer.Reason) book.Entry {
	t.Helper()
	e, err := c.Do(t.Context(), r)
	if err != nil || e.Refused != want {
		t.Fatalf("%s %s: got refused %q, %v; want %q", r.Kind.Op(), r.ReqID, e.Refused, err, want)
	}
	return e
}

// started is the default creation time of requests.
var started = book.MicrosOf(time.Now())

func withdrawal(id string, units uint64) book.Request {
	return book.Request{Kind: book.Withdraw, ReqID: id, UserID: 1, AssetID: 1, Units: units, CreatedAt: started}
}

func wantUnits(t testing.TB, c *core.Core, want uint64) {
	t.Helper()
	check.Equal(t, "balance", check.Value(c.Balance(t.Context(), book.AccountKey{UserID: 1, AssetID: 1}))(t).Units, want)
}

// journal returns at most limit lines after the given one.
func journal(c *core.Core, after uint64, limit int) (lines []book.Entry, last uint64, err error) {
	last, err = c.Journal(after, limit, func(e book.Entry) bool { lines = append(lines, e); return true })
	return lines, last, err
}

// halted checks that every method returns the halt.
func halted(t testing.TB, c *core.Core, cause error, advice string) {
	t.Helper()
	_, errDo := c.Do(t.Context(), withdrawal("after the halt", 1))
	_, errResolve := c.Resolve(t.Context(), withdrawal("after the halt", 1))
	_, errBalance := c.Balance(t.Context(), book.AccountKey{UserID: 1, AssetID: 1})
	_, errView := c.NewView(t.Context())
	_, errOld := c.ViewOf(1)
	_, _, errJournal := journal(c, 0, 1)
	for i, err := range []error{errDo, errResolve, errBalance, errView, errOld, errJournal} {
		var h *core.HaltError
		if !errors.As(err, &h) || cause != nil && !errors.Is(h.Cause, cause) || !strings.Contains(h.Advice, advice) {
			t.Errorf("method %d of a halted core: got %v, want a halt by %v that advises to %q", i, err, cause, advice)
		}
	}
}

// A reader of the journal's end is never told of a line that it did not get, while others write.
func TestJournalsEndIsOneReading(t *testing.T) {
	t.Parallel()
	c := stocked(t, core.Options{Folder: t.TempDir()})
	var writer sync.WaitGroup
	stop := make(chan struct{})
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				check.Value(c.Do(t.Context(), withdrawal(fmt.Sprint("w-", i), 1)))(t)
			}
		}
	})
	after := uint64(0)
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		lines, last, err := journal(c, after, 100)
		if got := after + uint64(len(lines)); err != nil || last < got || len(lines) == 0 && last > after {
			t.Errorf("after line %d: got %d lines and the last is %d, %v", after, len(lines), last, err)
			break
		}
		after += uint64(len(lines))
	}
	close(stop)
	writer.Wait()
}

// Operations that wait together share a commit. Each sees the effect of the earlier ones, and no two
// get the same line.
func TestConcurrentWithdrawalsShareACommit(t *testing.T) {
	t.Parallel()
	c := stocked(t, core.Options{Folder: t.TempDir()})
	var done sync.WaitGroup
	entries := make([]book.Entry, 1500)
	for i := range entries {
		done.Go(func() {
			e, err := c.Do(t.Context(), withdrawal(fmt.Sprint("w-", i), 1))
			if err != nil {
				t.Error(err)
			}
			entries[i] = e
		})
	}
	done.Wait()
	applied, lines := 0, map[uint64]bool{}
	for _, e := range entries {
		lines[e.Seq] = true
		if e.Refused == "" {
			applied++
		}
	}
	if applied != 1000 || len(lines) != len(entries) {
		t.Errorf("got %d applied on %d lines, want 1000 on %d", applied, len(lines), len(entries))
	}
	wantUnits(t, c, 0)
}

// A restart reads the newest complete snapshot and the later lines.
func TestRestartReadsSnapshotAndLaterLines(t *testing.T) {
	t.Parallel()
	o := core.Options{Folder: t.TempDir(), SnapshotEvery: 10}
	c := stocked(t, o)
	names, units := snapshots(t, c, o.Folder)
	for what, damage := range map[string]func([]byte) []byte{
		"flipped": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"cut":     func(b []byte) []byte { return b[:len(b)-1] },
		"empty":   func([]byte) []byte { return nil },
		"longer":  func(b []byte) []byte { return append(b, 0) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			o := core.Options{Folder: t.TempDir(), SnapshotEvery: 1000}
			check.OK(t)(os.CopyFS(o.Folder, os.DirFS(filepath.Dir(names[0]))))
			rewrite(t, filepath.Join(o.Folder, filepath.Base(names[1])), damage)
			c := open(t, o)
			wantUnits(t, c, units)
			do(t, c, withdrawal("w-0", 1), "")
			wantUnits(t, c, units)
			check.OK(t)(c.Close())
			rewrite(t, filepath.Join(o.Folder, filepath.Base(names[0])), damage)
			c = open(t, o)
			halted(t, c, book.ErrImage, "move all snapshots away")
			check.OK(t)(c.Close())
			for _, name := range names {
				check.OK(t)(os.Remove(filepath.Join(o.Folder, filepath.Base(name))))
			}
			wantUnits(t, open(t, o), units)
		})
	}
}

// snapshots withdraws single units until there are two snapshots, and closes the core. It returns the
// names of the snapshots, newest last, and the balance left.
func snapshots(t testing.TB, c *core.Core, folder string) (names []string, units uint64) {
	t.Helper()
	for units = 1000; len(names) < 2; units-- {
		do(t, c, withdrawal(fmt.Sprint("w-", 1000-units), 1), "")
		names = list(t, folder)
	}
	check.OK(t)(c.Close()) // no snapshot is being written after it
	if names = list(t, folder); len(names) != 2 {
		t.Fatalf("snapshots: got %v, want two kept", names)
	}
	return names, units
}

func list(t testing.TB, folder string) []string {
	t.Helper()
	names := check.Value(filepath.Glob(filepath.Join(folder, "snapshot-*.img")))(t)
	slices.Sort(names)
	return names
}

func rewrite(t testing.TB, path string, damage func([]byte) []byte) {
	t.Helper()
	check.OK(t)(os.WriteFile(path, damage(check.Value(os.ReadFile(path))(t)), 0o600))
}

// Damage that the journal finds halts, too.
func TestDamageFoundLaterHalts(t *testing.T) {
	t.Parallel()
	o := core.Options{Folder: t.TempDir(), SegmentBytes: 100}
	c := stocked(t, o)
	for i := range 10 {
		do(t, c, withdrawal(fmt.Sprint("w-", i), 1), "")
	}
	rewrite(t, filepath.Join(o.Folder, "wal-00000000000000000001.log"), func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
	if _, _, err := journal(c, 0, 100); err == nil {
		t.Error("journal over damage: got no error")
	}
	halted(t, c, nil, "do not delete anything")
}

// All pages of a view are of one line, while other requests are applied.
func TestViewStaysAsItWas(t *testing.T) {
	t.Parallel()
	c := stocked(t, core.Options{Folder: t.TempDir()})
	for user := range int64(25) {
		do(t, c, book.Request{Kind: book.Deposit, ReqID: fmt.Sprint("d-", user), UserID: 100 - user, AssetID: 1, Units: 5, CreatedAt: book.MicrosOf(time.Now())}, "")
	}
	view := check.Value(c.NewView(t.Context()))(t)
	do(t, c, withdrawal("in between", 1000), "")
	view = check.Value(c.ViewOf(view.Seq))(t)
	var paged []book.Balance
	for after, more := (book.AccountKey{}), true; more; {
		var page []book.Balance
		page, more = view.After(after, 7)
		paged = append(paged, page...)
		after = page[len(page)-1].AccountKey
	}
	if d := cmp.Diff(view.Balances, paged); d != "" || len(paged) != 26 || paged[0].Units != 1000 {
		t.Errorf("pages: got %d accounts, the first with %d units, (-want +got) %s", len(paged), paged[0].Units, d)
	}
	for i := range 5 {
		do(t, c, book.Request{Kind: book.Deposit, ReqID: fmt.Sprint("e-", i), UserID: 1, AssetID: 1, Units: 5, CreatedAt: book.MicrosOf(time.Now())}, "")
		check.OK(t)(c.NewView(t.Context()))
	}
	check.Err(t, "a view after five newer ones", core.ErrViewGone)(c.ViewOf(view.Seq))
}

// A forgotten key is not answered, even with a clock that was set back: a key that a snapshot dropped
// can never apply again.
func TestH17ForgottenKeyNeverAppliesAgain(t *testing.T) {
	t.Parallel()
	clock := &clock{now: epoch}
	o := core.Options{Folder: t.TempDir(), Horizon: time.Hour, SnapshotEvery: 5, Now: clock.Now, Elapsed: clock.Elapsed}
	c := stocked(t, o)
	old := withdrawal("old", 100)
	old.CreatedAt = book.MicrosOf(epoch)
	do(t, c, old, "")
	clock.pass(61 * time.Minute)
	do(t, c, old, "") // too old for a new key, but remembered
	clock.pass(time.Hour)
	for i := range 20 {
		r := withdrawal(fmt.Sprint("w-", i), 1)
		r.CreatedAt = book.MicrosOf(clock.Now())
		do(t, c, r, "")
	}
	for range 2 { // before and after a restart
		for _, set := range []time.Duration{0, -2 * time.Hour, 2 * time.Hour} {
			clock.add(set)
			what := fmt.Sprintf("a forgotten withdrawal, clock moved by %s", set)
			check.Err(t, what, book.ErrBeyondHorizon)(c.Do(t.Context(), old))
			check.Err(t, what+", resolved", book.ErrBeyondHorizon)(c.Resolve(t.Context(), old))
		}
		wantUnits(t, c, 880)
		check.OK(t)(c.Close())
		c = open(t, o)
	}
	check.Equal(t, "the journal after keys were forgotten (units)", sum(t, c, 24)[book.AccountKey{UserID: 1, AssetID: 1}], 880)
}
