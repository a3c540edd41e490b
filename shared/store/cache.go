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

// cache remembers a value of each of some keys. The zero cache is empty. It remembers for ever, until it is full:
// then it is emptied.
type cache[Key, Value comparable] struct {
	mu       sync.Mutex
	seen     map[Key]noted[Value]
	lasts    time.Duration // of an entry; 0: for ever
	keepsAll bool          // it is never emptied
}

type noted[Value comparable] struct {
	value Value
	at    time.Time // by the monotonic clock
}

// maxCached is the largest number of entries of a cache that does not keep all.
const maxCached = 10_000

// last is the key's value; zero if it has expired or there is none.
func (c *cache[Key, Value]) last(k Key) (v Value) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok := c.seen[k]; ok && (c.lasts == 0 || time.Since(n.at) <= c.lasts) {
		v = n.value
	}
	return v
}

// note keeps the value of the key; the zero value removes the key.
func (c *cache[Key, Value]) note(k Key, v Value) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v == *new(Value) {
		delete(c.seen, k)
		return
	}
	if c.seen == nil || len(c.seen) >= maxCached && !c.keepsAll {
		c.seen = make(map[Key]noted[Value])
	}
	c.seen[k] = noted[Value]{v, time.Now()}
}

// notedEpoch is a target of a scan: the cache keeps what a statement reads as the name epoch of a submitter.
type notedEpoch struct {
	names *cache[txmanager.Submitter, string]
	of    *txmanager.Submitter
}

// ScanText implements [pgtype.TextScanner].
func (n notedEpoch) ScanText(epoch pgtype.Text) error {
	n.names.note(*n.of, epoch.String)
	return nil
}

// nameEpochOf is a target of a scan for the name epoch of a submitter, which an earlier target may have.
func (s *Store) nameEpochOf(sub *txmanager.Submitter) notedEpoch { return notedEpoch{&s.names, sub} }

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
		case s.usable.last(pairOf(names, sub)):
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
