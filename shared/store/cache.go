package store

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// cache remembers values by their keys. A full one is emptied. The zero cache is empty.
type cache[Key comparable, Value any] struct {
	mu   sync.Mutex
	seen map[Key]Value
}

// maxCached is the largest number of entries of one cache.
const maxCached = 10_000

func (c *cache[Key, Value]) get(k Key) (v Value, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok = c.seen[k]
	return v, ok
}

// set keeps the value if it holds, and otherwise removes the entry.
func (c *cache[Key, Value]) set(k Key, v Value, holds bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !holds {
		delete(c.seen, k)
		return
	}
	if c.seen == nil || len(c.seen) >= maxCached {
		c.seen = make(map[Key]Value)
	}
	c.seen[k] = v
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

func (n *nameEpochCache) get(s txmanager.Submitter) string {
	epoch, _ := n.seen.Load(s)
	text, _ := epoch.(string)
	return text
}

// policyCache remembers submitters without a policy. Their intents share one statement; each
// other intent has its own, in the same round trip. A stale entry costs a second round trip
// and has no other effect.
type policyCache struct {
	cache[txmanager.Submitter, bool]
}

// hasNone is true if s is cached as one without a policy.
func (l *policyCache) hasNone(s txmanager.Submitter) bool {
	none, _ := l.get(s)
	return none
}

// note caches whether s has a policy.
func (l *policyCache) note(s txmanager.Submitter, limited bool) { l.set(s, true, !limited) }

// callerCache remembers which submitters a caller may use, by digests: what callers are named may be
// long. It only saves a query before an insert, which checks again. If the insert refuses a
// remembered pair, the pair is removed. Refusals are not cached, so that a new caller is accepted at
// once.
type callerCache struct {
	cache[[sha256.Size]byte, bool]
}

func pairOf(names []string, s txmanager.Submitter) [sha256.Size]byte {
	return sha256.Sum256([]byte(string(s) + "\x00" + strings.Join(names, "\x00")))
}

func (u *callerCache) mayPost(names []string, s txmanager.Submitter) bool {
	may, _ := u.get(pairOf(names, s))
	return may
}

// note adds the pair to the cache, or removes it.
func (u *callerCache) note(names []string, s txmanager.Submitter, may bool) {
	u.set(pairOf(names, s), true, may)
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
		case s.usable.mayPost(names, sub):
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
		s.usable.note(names, txmanager.Submitter(sub), true)
	}
	return may, nil
}
