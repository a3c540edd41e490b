package serve

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/web"
)

// compareEvery is the time between two comparisons of a process.
const compareEvery = time.Minute

// compareTimeout bounds one comparison, the storage's and the database's time together.
const compareTimeout = 10 * time.Second

// Mark compares the database with the high-water mark stored outside it. A nil value does nothing.
type Mark struct {
	keeper mark.Keeper
	adopts func(context.Context, mark.Observed, string) error

	compared atomic.Bool // the first comparison has finished
	mu       sync.Mutex
	next     time.Time // by the monotonic clock
}

// NewMark returns the mark that object holds, of the database in store.
func NewMark(object mark.Object, store *store.Store) *Mark {
	return &Mark{keeper: mark.Keeper{Object: object, Book: store}, adopts: store.AdoptMark}
}

// Close closes the object, if that has a connection.
func (m *Mark) Close() error {
	if m == nil {
		return nil
	}
	if c, ok := m.keeper.Object.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Compare compares before the first request that reads a row, and then once a minute. Requests that
// arrive during the first comparison wait for it. Later one request compares, and the others use the
// last result. When it returns, a foreign database has been marked as not the accepted database, and its own
// rows say so to every reader. An unreadable mark stops no request. A database that did not answer
// fails the request.
func (m *Mark) Compare(ctx context.Context, log *slog.Logger) error {
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
	_, err := m.keeper.Compare(comparing)
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

func (m *Mark) logResult(ctx context.Context, log *slog.Logger, err error) {
	switch {
	case errors.Is(err, mark.ErrForeign):
		log.Log(ctx, telemetry.LevelCritical, "PROTECT on every submitter: the database does not hold the mark outside it, until an operator accepts it",
			"error", err.Error())
	case err != nil && !errors.Is(err, mark.ErrNone):
		log.WarnContext(ctx, "the database could not be compared with the mark outside it", "error", err.Error())
	}
}

// Sweep writes the next mark. If the storage does not answer, a gauge shows it and nothing stops.
func (m *Mark) Sweep(ctx context.Context, log *slog.Logger) {
	if m == nil {
		return
	}
	err := m.keeper.Advance(ctx, store.MarkOfSweep)
	if store.IsMoving(err) { // during a move the last mark stays; it was read
		err = nil
	}
	var uncompared float64
	if err != nil && !errors.Is(err, mark.ErrForeign) {
		uncompared = 1
	}
	telemetry.MarkUncompared.Record(ctx, uncompared)
	m.logResult(ctx, log, err)
}

// Adopt lets a database that an operator is about to accept overwrite the existing mark. If it fails,
// the next comparison finds the database foreign again, which is safe.
func (m *Mark) Adopt(ctx context.Context, log *slog.Logger, operator string) {
	if m == nil {
		return
	}
	seen, err := m.keeper.Object.Read(ctx)
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

// Accepted writes a mark of the database that an operator accepted. From then on any other database is
// foreign.
func (m *Mark) Accepted(ctx context.Context, log *slog.Logger) {
	if m == nil {
		return
	}
	m.logResult(ctx, log, m.keeper.Advance(ctx, "accepted"))
}
