package store

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// callerCache remembers which submitters a caller may use. It only saves a query before an
// insert, which checks again. If the insert refuses a remembered pair, the pair is removed.
// Refusals are not cached, so that a new caller is accepted at once.
type callerCache struct {
	mu   sync.Mutex
	seen map[[sha256.Size]byte]bool // by digest: what callers are named may be long
}

// maxCachedCallers is the largest number of cached pairs. Removing one costs one query.
const maxCachedCallers = 10_000

func pairOf(names []string, s txmanager.Submitter) [sha256.Size]byte {
	return sha256.Sum256([]byte(string(s) + "\x00" + strings.Join(names, "\x00")))
}

func (u *callerCache) mayPost(names []string, s txmanager.Submitter) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen[pairOf(names, s)]
}

// note adds the pair to the cache, or removes it.
func (u *callerCache) note(names []string, s txmanager.Submitter, may bool) {
	pair := pairOf(names, s)
	u.mu.Lock()
	defer u.mu.Unlock()
	if !may {
		delete(u.seen, pair)
		return
	}
	if u.seen == nil || len(u.seen) >= maxCachedCallers {
		u.seen = make(map[[sha256.Size]byte]bool)
	}
	u.seen[pair] = true
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
	rows, err := s.db.Query(ctx, findUsable, names, ask)
	if err != nil {
		return nil, fmt.Errorf("find the submitters of a caller: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("find the submitters of a caller: %w", err)
	}
	for _, sub := range found {
		may[txmanager.Submitter(sub)] = true
		s.usable.note(names, txmanager.Submitter(sub), true)
	}
	return may, nil
}
