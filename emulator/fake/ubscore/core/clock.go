package core

import (
	"log/slog"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
)

// forgetAfter is the extra time that a key is kept beyond the horizon, as one part in 24 of it. It
// covers changes of the clock.
const forgetAfter = 24

// callerSample is the number of consecutive requests whose newest creation time counts as the
// callers' time. Single requests can be old, because they are repeated.
const callerSample = 100

const hour = book.Micros(time.Hour / time.Microsecond)

// clock is the machine's clock with two values to check it: how long the core has run, and the
// creation times of requests.
//
// A key forgotten because of a wrong clock is lost for ever. So the book forgets by the least of
// all these times. A key that is kept too long costs only memory.
type clock struct {
	now       func() time.Time
	elapsed   func() time.Duration // since any moment, by a clock that is never set
	tolerance book.Micros          // the largest difference of the times that is not logged
	log       *slog.Logger

	start         book.Micros // the machine's time at elapsed's zero, measured at the start
	earliestStart book.Micros // that time, as the earliest that any later reading allows

	requests int         // requests since the last comparison with callers
	newest   book.Micros // creation time of the newest of these
	callers  book.Micros // how far the clock was ahead of the callers
	wrong    bool        // whether the difference was logged
}

// newClock returns the clock of a core whose newest remembered request was created at newest; 0:
// none. A core does not know how long it was down and assumes no time.
func newClock(o Options, newest book.Micros) clock {
	c := clock{now: o.Now, elapsed: o.Elapsed, tolerance: microsIn(o.Horizon / forgetAfter), log: o.Log}
	now, ran := book.MicrosOf(c.now()), microsIn(c.elapsed())
	c.start, c.earliestStart = now-ran, now-ran
	if newest != 0 {
		c.earliestStart = min(now, newest) - ran
	}
	return c
}

func microsIn(d time.Duration) book.Micros { return book.Micros(d / time.Microsecond) }

// read returns the machine's time.
func (c *clock) read() book.Micros {
	now := book.MicrosOf(c.now())
	c.earliestStart = min(c.earliestStart, now-microsIn(c.elapsed()))
	return now
}

// safeTime returns the time by which the book may forget. newest is the creation time of its newest
// remembered request.
func (c *clock) safeTime(newest book.Micros) book.Micros {
	return min(c.read(), newest, c.earliestStart+microsIn(c.elapsed()))
}

// observe records a request's creation time, even if the request is refused.
func (c *clock) observe(createdAt, now book.Micros) {
	c.newest = max(c.newest, createdAt)
	if c.requests++; c.requests == callerSample {
		c.callers = now - c.newest
		c.requests, c.newest = 0, 0
	}
}

// compare logs when the times begin to differ, and when they agree again.
func (c *clock) compare(now book.Micros) {
	set := now - microsIn(c.elapsed()) - c.start
	wrong := max(set, -set, c.callers, -c.callers) > c.tolerance
	switch {
	case wrong && !c.wrong:
		c.log.Warn("the clock of the core or those of its callers are far off: requests may go unanswered, and keys are kept longer; put the clocks right, and if the core's is right now, start the core again",
			"hoursSetForwardSinceStart", set/hour, "hoursAheadOfCallers", c.callers/hour)
	case !wrong && c.wrong:
		c.log.Info("the clocks of the core and of its callers agree again")
	}
	c.wrong = wrong
}
