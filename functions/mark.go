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

// compareEvery is between two looks of a process.
const compareEvery = time.Minute

// compareTimeout bounds one look: the storage's own time, and the database's.
const compareTimeout = 10 * time.Second

// marks compares the database with the mark outside it. A nil one does nothing.
type marks struct {
	keeper mark.Keeper
	object *gcs.Object
	adopts func(context.Context, mark.Seen, string) error

	compared atomic.Bool // the first look has come to an end
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

// compare compares before the first request that reads a row, and then once a minute.
// Requests that come during the first look wait; later one request looks, and the others
// go on by what the last look said. A foreign database has been distrusted when it
// returns: its own rows say so to whoever reads them. A mark that cannot be read stops
// nobody; a database that could not be asked is not believed.
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
	// A caller that hangs up ends no look: what it broke off would count as unread.
	looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), compareTimeout)
	defer cancel()
	_, err := m.keeper.Look(looking)
	if err != nil && !decided(err) {
		return web.UnavailableBecause(err, "the database could not be compared with the mark outside it")
	}
	m.next = time.Now().Add(compareEvery)
	m.compared.Store(true)
	m.tell(ctx, log, err)
	return nil
}

// decided says that a look came to an end that is no failure of the database.
func decided(err error) bool {
	return errors.Is(err, mark.ErrForeign) || errors.Is(err, mark.ErrGone) || errors.Is(err, mark.ErrNone) || errors.Is(err, mark.ErrUnread)
}

func (m *marks) tell(ctx context.Context, log *slog.Logger, err error) {
	switch {
	case errors.Is(err, mark.ErrForeign):
		log.Log(ctx, telemetry.LevelCritical, "PROTECT on every submitter: the database does not hold the mark outside it, until an operator accepts it",
			"error", err.Error())
	case err != nil && !errors.Is(err, mark.ErrNone):
		log.WarnContext(ctx, "the database could not be compared with the mark outside it", "error", err.Error())
	}
}

// sweepMark writes the next mark. A storage that does not answer is shown, and stops nothing.
func (a *App) sweepMark(ctx context.Context) error {
	if a.marks == nil {
		return nil
	}
	err := a.marks.keeper.Advance(ctx, store.MarkOfSweep)
	if store.IsMoving(err) { // the last mark stays, and was seen
		err = nil
	}
	var uncompared int64
	if err != nil && !errors.Is(err, mark.ErrForeign) {
		uncompared = 1
	}
	telemetry.MarkUncompared.Record(ctx, uncompared)
	a.marks.tell(ctx, a.log, err)
	return nil
}

// adopt lets a database that is about to be accepted write over the mark that is there.
// Without it the database is foreign again at the next look, which is the safe side.
func (m *marks) adopt(ctx context.Context, log *slog.Logger, operator string) {
	if m == nil {
		return
	}
	seen, err := m.object.Read(ctx)
	if errors.Is(err, mark.ErrNone) { // lost with its bucket: the acceptance writes the first one
		err = nil
	}
	if err == nil {
		err = m.adopts(ctx, seen, operator)
	}
	if err != nil {
		log.WarnContext(ctx, "the mark outside the database was not adopted: the database may be foreign again", "error", err.Error())
	}
}

// accepted writes a mark of the database as it was accepted: any other one is foreign from now on.
func (m *marks) accepted(ctx context.Context, log *slog.Logger) {
	if m == nil {
		return
	}
	m.tell(ctx, log, m.keeper.Advance(ctx, "accepted"))
}
