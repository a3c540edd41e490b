package store

import (
	"sync"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// maxSharedLoad limits each statement of a load of several submitters, and [Store.sharedLoadLimit]
// leaves time for all of them. A lone load that takes more than one part in costlyPart of it is costly.
const (
	maxSharedLoad = time.Second
	costlyPart    = 16
)

func (s *Store) sharedLoadLimit() time.Duration {
	return min(maxSharedLoad, (s.rules.Duration-s.rules.RenewBelow)/5)
}

// costlyLoads are the submitters whose load would delay those that share its round trip, each with the
// time when that was measured. A busy process measures too much, so this is forgotten after costlyFor.
type costlyLoads struct{ all sync.Map }

const costlyFor = 10 * time.Second

func (c *costlyLoads) has(s txmanager.Submitter) bool {
	at, ok := c.all.Load(s)
	return ok && time.Since(at.(time.Time)) < costlyFor
}

// note keeps whether the last lone load of s was costly.
func (c *costlyLoads) note(s txmanager.Submitter, costly bool) {
	if costly {
		c.all.Store(s, time.Now())
	} else {
		c.all.Delete(s)
	}
}
