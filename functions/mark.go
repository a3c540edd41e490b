package functions

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/mark/gcs"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/web"
)

// compareEvery is the time between two comparisons of a process.
const compareEvery = time.Minute

// compareTimeout bounds one comparison, the storage's and the database's time together.
const compareTimeout = 10 * time.Second

// marks compares the database with the high-water mark stored outside it. A nil value does nothing.
type marks struct {
	keeper mark.Keeper
	object *gcs.Object
	adopts func(context.Context, mark.Seen, string) error

	compared atomic.Bool // the first comparison has finished
	mu       sync.Mutex
	next     time.Time // by the monotonic clock
}

func (a *App) openMark(ctx context.Context) error {
	c := a.config.Authority
	if !c.Mark {
		return nil
	}
	object, err := gcs.Open(ctx, c.Bucket, mark.ObjectName, c.Endpoint)
	if err != nil {
		return err
	}
	a.marks = &marks{keeper: mark.Keeper{Object: object, Book: a.store}, object: object, adopts: a.store.AdoptMark}
	return nil
}

func (m *marks) close() error {
	if m == nil || m.object == nil {
		return nil
	}
	return m.object.Close()
}

// compare compares before the first request that reads a row, and then once a minute. Requests that
// arrive during the first comparison wait for it. Later one request compares, and the others use the
// last result. When it returns, a foreign database has been marked as not the authority, and its own
// rows say so to every reader. An unreadable mark stops no request. A database that did not answer
// fails the request.
func (m *marks) compare(ctx context.Context, log *slog.Logger) error {
	if m == nil {
		return nil
	}
	if !m.mu.TryLock() {
		if m.compared.Load() {
			return nil
		}
		m.mu.Lock()
	}
	defer m.mu.Unlock()
	if time.Now().Before(m.next) {
		return nil
	}
	// A caller that disconnects must not end the comparison: a cancelled one would count as unread.
	comparing, cancel := context.WithTimeout(context.WithoutCancel(ctx), compareTimeout)
	defer cancel()
	_, err := m.keeper.Look(comparing)
	if err != nil && !isConclusive(err) {
		return web.UnavailableBecause(err, "the database could not be compared with the mark outside it")
	}
	m.next = time.Now().Add(compareEvery)
	m.compared.Store(true)
	m.logResult(ctx, log, err)
	return nil
}

// isConclusive reports whether the comparison finished without a failure of the database.
func isConclusive(err error) bool {
	return errors.Is(err, mark.ErrForeign) || errors.Is(err, mark.ErrGone) || errors.Is(err, mark.ErrNone) || errors.Is(err, mark.ErrUnread)
}

func (m *marks) logResult(ctx context.Context, log *slog.Logger, err error) {
	switch {
	case errors.Is(err, mark.ErrForeign):
		log.Log(ctx, telemetry.LevelCritical, "PROTECT on every submitter: the database does not hold the mark outside it, until an operator accepts it",
			"error", err.Error())
	case err != nil && !errors.Is(err, mark.ErrNone):
		log.WarnContext(ctx, "the database could not be compared with the mark outside it", "error", err.Error())
	}
}

// sweepMark writes the next mark. If the storage does not answer, a gauge shows it and nothing stops.
func (a *App) sweepMark(ctx context.Context) error {
	if a.marks == nil {
		return nil
	}
	err := a.marks.keeper.Advance(ctx, store.MarkOfSweep)
	if store.IsMoving(err) { // during a move the last mark stays; it was read
		err = nil
	}
	var uncompared int64
	if err != nil && !errors.Is(err, mark.ErrForeign) {
		uncompared = 1
	}
	telemetry.MarkUncompared.Record(ctx, uncompared)
	a.marks.logResult(ctx, a.log, err)
	return nil
}

// adopt lets a database that an operator is about to accept overwrite the existing mark. If it fails,
// the next comparison finds the database foreign again, which is safe.
func (m *marks) adopt(ctx context.Context, log *slog.Logger, operator string) {
	if m == nil {
		return
	}
	seen, err := m.object.Read(ctx)
	if errors.Is(err, mark.ErrNone) { // the bucket and its mark were lost: the acceptance writes the first one
		err = nil
	}
	if err == nil {
		err = m.adopts(ctx, seen, operator)
	}
	if err != nil {
		log.WarnContext(ctx, "the mark outside the database was not adopted: the database may be foreign again", "error", err.Error())
	}
}

// accepted writes a mark of the database that an operator accepted. From then on any other database is
// foreign.
func (m *marks) accepted(ctx context.Context, log *slog.Logger) {
	if m == nil {
		return
	}
	m.logResult(ctx, log, m.keeper.Advance(ctx, "accepted"))
}
