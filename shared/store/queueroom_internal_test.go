package store

import (
	"strconv"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const testBound = 1000

// measured returns a memory of a queue of so many rows.
func measured(rows int) *queueRoom {
	r := new(queueRoom)
	r.note(new(queueShare), queueMeasure{added: rows, complete: true}, testBound)
	return r
}

// taken is the share that the memory gives of the wanted places.
func taken(r *queueRoom, wanted int) *queueShare {
	q := &queueShare{memory: r, wanted: wanted}
	r.take(q, testBound)
	return q
}

// Shares that are taken at once from a memory that is new or too old get bound/100 places in all.
func TestSharesOfAnUnmeasuredQueueAreLimitedTogether(t *testing.T) {
	t.Parallel()
	old := measured(0)
	old.until = time.Time{}
	for name, r := range map[string]*queueRoom{"new": new(queueRoom), "too old": old} {
		places := 0
		for range 4 {
			q := taken(r, 6)
			places += q.places
			check.Equal(t, name+": the share measures", q.measures, true)
		}
		check.Equal(t, name+": places", places, testBound/100)
	}
}

// A place given back changes the memory that gave it, and no later measurement.
func TestAPlaceIsGivenBackToItsOwnMeasurement(t *testing.T) {
	t.Parallel()
	r := measured(500)
	q := taken(r, 2)
	r.giveBack(q)
	check.Equal(t, "rows after one of two places was given back", r.rows, 501)
	r.note(new(queueShare), queueMeasure{added: 700, complete: true}, testBound)
	r.giveBack(q)
	check.Equal(t, "rows after a measurement of 700", r.rows, 700)
}

// Memories of full queues are kept when there are too many memories.
func TestMemoriesOfFullQueuesAreKept(t *testing.T) {
	t.Parallel()
	rooms := queueRooms{seen: map[txmanager.Submitter]*queueRoom{"full": measured(testBound), "not full": measured(testBound - 1)}}
	full := rooms.seen["full"]
	full.until = time.Now().Add(time.Hour)
	for i := range maxCached {
		rooms.of(txmanager.Submitter(strconv.Itoa(i)), testBound)
	}
	check.Equal(t, "the memory of the full queue is kept", rooms.of("full", testBound) == full, true)
	check.Equal(t, "the memory of the other is kept", rooms.seen["not full"] != nil, false)
}
