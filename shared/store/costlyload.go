package store

import "time"

// maxSharedLoad limits each statement of a load of several submitters, and [Store.sharedLoadLimit]
// leaves time for all of them. A lone load that takes more than one part in costlyPart of it is costly.
const (
	maxSharedLoad = time.Second
	costlyPart    = 16

	// costlyFor is how long a load counts as costly: a busy process measures too much.
	costlyFor = 10 * time.Second
)

func (s *Store) sharedLoadLimit() time.Duration {
	return min(maxSharedLoad, (s.rules.Duration-s.rules.RenewBelow)/5)
}
