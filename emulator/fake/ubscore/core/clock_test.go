package core_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
	"github.com/fencepost/fencepost/shared/check"
)

const day = 24 * time.Hour

// deposit returns a deposit for user 1, created at that time.
func deposit(id string, createdAt time.Time) book.Request {
	return book.Request{Kind: book.OutsideDeposit, ReqID: id, UserID: 1, AssetID: 1, Units: 1, CreatedAt: book.MicrosOf(createdAt)}
}

// A clock that is wrong for a while makes the core forget no key. When it is right again, an earlier
// withdrawal can be refunded, and new requests are applied.
func TestH17WrongClockForgetsNoKey(t *testing.T) {
	t.Parallel()
	const age = 12 * day // of the withdrawal that is refunded in the end
	for what, x := range map[string]struct {
		ahead   time.Duration // error of the core's clock
		callers time.Duration // how far their clocks are ahead
		restart bool          // while the clock is wrong
	}{
		"it and its callers' jump":      {ahead: 45 * day, callers: 45 * day},
		"it alone jumps":                {ahead: 20 * day},
		"it alone is wrong at a start":  {ahead: 20 * day, restart: true},
		"both are wrong after a start":  {ahead: 45 * day, callers: 45 * day, restart: true},
		"its callers' run ahead a bit":  {callers: 59 * time.Minute},
		"it runs behind, callers right": {ahead: -59 * time.Minute},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			clock := &clock{now: epoch.Add(-age)}
			o := core.Options{Folder: t.TempDir(), SnapshotEvery: 10, Now: clock.Now, Elapsed: clock.Elapsed}
			c := stocked(t, o)
			old := withdrawal("R", 5)
			old.CreatedAt = book.MicrosOf(clock.Now())
			do(t, c, old, "")
			reopen := func() {
				t.Helper()
				check.OK(t)(c.Close())
				c = open(t, o)
			}
			clock.pass(age)
			reopen()
			clock.add(x.ahead)
			if x.restart {
				reopen()
			}
			for i := range 25 {
				do(t, c, deposit(fmt.Sprint("x-", i), epoch.Add(x.callers)), "")
			}
			clock.add(-x.ahead)
			do(t, c, deposit("new", epoch), "")
			reopen()
			old.Kind = book.Refund
			do(t, c, old, "")
			do(t, c, deposit("newer", epoch), "")
			wantUnits(t, c, 1027)
		})
	}
}

// A core without any other reading uses its callers' times while its clock is wrong, and its clock
// again when that is right.
func TestH17CallersTimeReplacesAWrongClock(t *testing.T) {
	t.Parallel()
	const ahead = 20 * day
	clock := &clock{now: epoch.Add(ahead)}
	c := open(t, core.Options{Folder: t.TempDir(), SnapshotEvery: 10, Now: clock.Now, Elapsed: clock.Elapsed})
	created := epoch.Add(-9 * day) // the first key in the book: no older one protects it
	do(t, c, book.Request{Kind: book.AddAsset, ReqID: "asset", AssetID: 1, Precision: 6, CreatedAt: book.MicrosOf(created)}, "")
	do(t, c, deposit("opening", created), "")
	old := withdrawal("R", 1)
	old.CreatedAt = book.MicrosOf(created)
	do(t, c, old, "")
	deposits := func(name string, createdAt time.Time) {
		t.Helper()
		for i := range 25 {
			do(t, c, deposit(fmt.Sprint(name, i), createdAt), "")
		}
	}
	clock.pass(3 * day)
	deposits("the clock alone is wrong ", epoch.Add(3*day))
	clock.add(-ahead)
	clock.pass(5 * day)
	deposits("it is right ", clock.Now())
	clock.add(ahead)
	deposits("it and its callers are wrong ", clock.Now())
	clock.add(-ahead)
	old.Kind = book.Refund
	do(t, c, old, "")
	wantUnits(t, c, 76)
}

// A clock that differs much from the callers' times, or from the core's uptime, is logged once each
// time.
func TestWrongClockIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for what, x := range map[string]struct {
		set     time.Duration
		callers time.Duration
		want    int
	}{
		"right":          {0, 0, 0},
		"a day":          {day, day, 0},
		"both ahead":     {45 * day, 45 * day, 2},
		"it alone ahead": {20 * day, 0, 2},
		"it alone back":  {-20 * day, 0, 2},
		"callers ahead":  {0, 45 * day, 2},
		"callers behind": {0, -45 * day, 2},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			clock := &clock{now: epoch}
			var log bytes.Buffer // the core has written to it before it answers
			o := core.Options{Folder: t.TempDir(), Now: clock.Now, Elapsed: clock.Elapsed, Log: slog.New(slog.NewTextHandler(&log, nil))}
			c := check.Value(core.Open(o))(t)
			defer c.Close()
			ask := func(times int, createdAt time.Time) {
				for range times {
					_, _ = c.Do(t.Context(), deposit("a", createdAt)) // its creation time counts whatever the answer
				}
			}
			for range 2 {
				ask(200, epoch)
				clock.add(x.set)
				ask(200, epoch.Add(x.callers))
				clock.add(-x.set)
			}
			ask(200, epoch)
			if got := strings.Count(log.String(), "level=WARN"); got != x.want {
				t.Errorf("warnings: got %d, want %d: %s", got, x.want, log.String())
			}
		})
	}
}
