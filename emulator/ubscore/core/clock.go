package core

import (
	"log/slog"
	"time"

	"github.com/fencepost/fencepost/emulator/ubscore/book"
)

// forgetAfter is how much longer than the horizon a key is kept, as a share of it:
// forgetting goes by a clock, and clocks are set.
const forgetAfter = 24

// witnesses is how many requests in a row tell the time together, by the newest
// of them: some are old, since they are asked again.
const witnesses = 100

const hour = book.Micros(time.Hour / time.Microsecond)

// clock is the machine's clock, and what there is to doubt it by: how long the
// core has run, and when its callers say that they created their requests.
//
// What is forgotten in a second in which the clock is wrong is forgotten for ever.
// So the book forgets by the least of all these times, and what it keeps too long
// costs only memory.
type clock struct {
	now     func() time.Time
	elapsed func() time.Duration // since any moment, by a clock that nobody sets
	far     book.Micros          // the most that the times may differ before that is told
	log     *slog.Logger

	began    book.Micros // elapsed's zero, by the machine's clock at the start
	believed book.Micros // that zero, no later than anything has said since

	asked   int         // requests since callers were last compared
	newest  book.Micros // of those
	callers book.Micros // how far the clock was ahead of them
	wrong   bool        // whether it was told that the times differ
}

// newClock is the clock for a core that remembers nothing created after newest; 0:
// nothing at all. A core does not know how long it was down: until it is started
// again it takes that for no time.
func newClock(o Options, newest book.Micros) clock {
	c := clock{now: o.Now, elapsed: o.Elapsed, far: microsIn(o.Horizon / forgetAfter), log: o.Log}
	now, ran := book.MicrosOf(c.now()), microsIn(c.elapsed())
	c.began, c.believed = now-ran, now-ran
	if newest != 0 {
		c.believed = min(now, newest) - ran
	}
	return c
}

func microsIn(d time.Duration) book.Micros { return book.Micros(d / time.Microsecond) }

// read is what the machine's clock says.
func (c *clock) read() book.Micros {
	now := book.MicrosOf(c.now())
	c.believed = min(c.believed, now-microsIn(c.elapsed()))
	return now
}

// believable is the time that the book may forget by, whose newest remembered
// request was created at newest.
func (c *clock) believable(newest book.Micros) book.Micros {
	return min(c.read(), newest, c.believed+microsIn(c.elapsed()))
}

// witness takes a request's time of creation, whatever becomes of the request.
func (c *clock) witness(createdAt, now book.Micros) {
	c.newest = max(c.newest, createdAt)
	if c.asked++; c.asked == witnesses {
		c.callers = now - c.newest
		c.asked, c.newest = 0, 0
	}
}

// compare tells when the times begin to differ, and when they agree again.
func (c *clock) compare(now book.Micros) {
	set := now - microsIn(c.elapsed()) - c.began
	wrong := max(set, -set, c.callers, -c.callers) > c.far
	switch {
	case wrong && !c.wrong:
		c.log.Warn("the clock of the core or those of its callers are far off: requests may go unanswered, and keys are kept longer; put the clocks right, and if the core's is right now, start the core again",
			"hoursSetForwardSinceStart", set/hour, "hoursAheadOfCallers", c.callers/hour)
	case !wrong && c.wrong:
		c.log.Info("the clocks of the core and of its callers agree again")
	}
	c.wrong = wrong
}
