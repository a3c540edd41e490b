package store

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// cache remembers what holds of some keys. A full one is emptied. The zero cache is empty, and remembers for ever.
type cache[Key comparable] struct {
	mu    sync.Mutex
	seen  map[Key]time.Time
	lasts time.Duration // of an entry; 0: for ever
}

// maxCached is the largest number of entries of one cache.
const maxCached = 10_000

func (c *cache[Key]) has(k Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.seen[k]
	return ok && (c.lasts == 0 || time.Since(at) < c.lasts)
}

// note adds the key if it holds, and otherwise removes it.
func (c *cache[Key]) note(k Key, holds bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !holds {
		delete(c.seen, k)
		return
	}
	if c.seen == nil || len(c.seen) >= maxCached {
		c.seen = make(map[Key]time.Time)
	}
	c.seen[k] = time.Now()
}

// nameEpochCache has the name epochs of submitters, as the last load or create returned them.
// Only submitters that were released by resync have one.
// It forgets none: without the epoch a task would get the name of one before the release.
type nameEpochCache struct {
	seen sync.Map // by submitter
}

func (n *nameEpochCache) note(s txmanager.Submitter, epoch string) {
	if epoch == "" {
		n.seen.Delete(s)
		return
	}
	n.seen.Store(s, epoch)
}

// notedEpoch is a target of a scan: the cache keeps what a statement reads as the name epoch of a submitter.
type notedEpoch struct {
	names *nameEpochCache
	of    *txmanager.Submitter
}

// ScanText implements [pgtype.TextScanner].
func (n notedEpoch) ScanText(epoch pgtype.Text) error {
	n.names.note(*n.of, epoch.String)
	return nil
}

// nameEpochOf is a target of a scan for the name epoch of a submitter, which an earlier target may have.
func (s *Store) nameEpochOf(sub *txmanager.Submitter) notedEpoch { return notedEpoch{&s.names, sub} }

func (n *nameEpochCache) get(s txmanager.Submitter) string {
	epoch, _ := n.seen.Load(s)
	text, _ := epoch.(string)
	return text
}

// pairOf is the digest of a pair of [Store.usable].
func pairOf(names []string, s txmanager.Submitter) [sha256.Size]byte {
	return sha256.Sum256([]byte(string(s) + "\x00" + strings.Join(names, "\x00")))
}

// findUsable accepts every caller where "*" is listed. The insert then checks the caller and
// refuses it with ErrAnyCaller.
const findUsable = `
select s.submitter
  from unnest($2::text[]) as i (submitter)
  join submitter s on s.submitter = i.submitter
 where s.callers && (array['*'] || $1::text[])`

// UsableSubmitters reports which of the submitters are registered and may be used by the
// caller. It queries the database once, for the pairs that are not cached. The caller's
// payloads are not parsed before this check. names are as in [Intent].
func (s *Store) UsableSubmitters(ctx context.Context, names []string, submitters []txmanager.Submitter) (map[txmanager.Submitter]bool, error) {
	may := make(map[txmanager.Submitter]bool)
	asked := make(map[txmanager.Submitter]bool)
	var ask []string
	for _, sub := range submitters {
		switch {
		case s.usable.has(pairOf(names, sub)):
			may[sub] = true
		case !asked[sub]:
			asked[sub], ask = true, append(ask, string(sub))
		}
	}
	if len(ask) == 0 {
		return may, nil
	}
	found, err := results.All(ctx, s.db, pgx.RowTo[string], findUsable, names, ask)
	if err != nil {
		return nil, fmt.Errorf("find the submitters of a caller: %w", err)
	}
	for _, sub := range found {
		may[txmanager.Submitter(sub)] = true
		s.usable.note(pairOf(names, txmanager.Submitter(sub)), true)
	}
	return may, nil
}
