package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/shared/batch"
	"github.com/fencepost/fencepost/shared/check"
)

// service answers a call with itself in capitals, one second after the round trip began.
type service struct{ trips [][]string }

func (s *service) send(ctx context.Context, all []string) []batch.Result[string] {
	s.trips = append(s.trips, slices.Sorted(slices.Values(all)))
	results := make([]batch.Result[string], len(all))
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	for i, call := range all {
		switch {
		case call == "panic":
			panic("a fault in the service")
		case ctx.Err() != nil:
			results[i].Err = ctx.Err()
		case strings.HasPrefix(call, "bad"):
			results[i].Err = errors.New("refused: " + call)
		default:
			results[i].Value = strings.ToUpper(call)
		}
	}
	return results
}

// run makes the first call, then the others while its round trip is under way, and returns what
// each was answered.
func run(t *testing.T, o batch.Options[string, string], calls ...string) (*service, map[string]string) {
	t.Helper()
	s, answers := new(service), make(map[string]string)
	synctest.Test(t, func(t *testing.T) {
		o.Send = s.send
		if o.Timeout == 0 {
			o.Timeout = time.Minute
		}
		if o.MaxCalls == 0 {
			o.MaxCalls = 100
		}
		g, done := batch.New(o), make(chan [2]string, len(calls))
		for _, call := range calls {
			go func() {
				got, err := g.Do(t.Context(), call)
				if err != nil {
					got = err.Error()
				}
				done <- [2]string{call, got}
			}()
			synctest.Wait()
		}
		for range calls {
			a := <-done
			answers[a[0]] = a[1]
		}
	})
	return s, answers
}

func TestCallsShareTheNextRoundTrip(t *testing.T) {
	s, answers := run(t, batch.Options[string, string]{}, "a", "b", "bad", "c")
	check.Equal(t, "round trips", fmt.Sprint(s.trips), "[[a] [b bad c]]")
	check.Equal(t, "answers", fmt.Sprint(answers), "map[a:A b:B bad:refused: bad c:C]")
}

func TestCallsOfOneKeyDoNotShare(t *testing.T) {
	first := func(call string) string { return call[:1] }
	s, _ := run(t, batch.Options[string, string]{Key: first}, "a", "b1", "c", "b2", "b3")
	check.Equal(t, "round trips", fmt.Sprint(s.trips), "[[a] [b1 c] [b2] [b3]]")
}

func TestRoundTripsAreLimited(t *testing.T) {
	s, _ := run(t, batch.Options[string, string]{MaxCalls: 2}, "a", "b", "c", "d")
	check.Equal(t, "round trips of two calls", fmt.Sprint(s.trips), "[[a] [b c] [d]]")
	size := func(call string) int { return len(call) }
	s, _ = run(t, batch.Options[string, string]{Size: size, MaxSize: 3}, "a", "bb", "c", "dd", "eeeee", "f")
	check.Equal(t, "round trips of a size of three", fmt.Sprint(s.trips), "[[a] [bb c] [dd] [eeeee] [f]]")
}

// Where round trips may run in parallel, no waiting call waits for another one's.
func TestWaitingCallsStartTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := batch.New(batch.Options[string, string]{MaxCalls: 2, Timeout: time.Minute, Parallel: true, Send: func(_ context.Context, all []string) []batch.Result[string] {
			time.Sleep(time.Second)
			return make([]batch.Result[string], len(all))
		}})
		began := time.Now()
		var calls sync.WaitGroup
		for _, call := range []string{"a", "b", "c", "d", "e"} {
			calls.Go(func() {
				if _, err := g.Do(t.Context(), call); err != nil {
					t.Errorf("%s: got %v, want nil", call, err)
				}
			})
			synctest.Wait()
		}
		calls.Wait()
		check.Equal(t, "time until all answers", time.Since(began), 2*time.Second)
	})
}

func TestASlowRoundTripHoldsNobodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(service)
		g := batch.New(batch.Options[string, string]{Send: s.send, MaxCalls: 10, Timeout: time.Minute, SlowAfter: 100 * time.Millisecond})
		go func() { _, _ = g.Do(t.Context(), "slow") }()
		synctest.Wait()
		began := time.Now()
		_, err := g.Do(t.Context(), "b")
		check.OK(t)(err)
		check.Equal(t, "time until the second answer", time.Since(began), 1100*time.Millisecond)
	})
}

// A round trip of many calls takes longer than one of a single call, and is not slow for that.
func TestARoundTripOfManyCallsHasMoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := new(service), time.Now()
		g := batch.New(batch.Options[string, string]{Send: s.send, MaxCalls: 10, Timeout: time.Minute, SlowAfter: 750 * time.Millisecond, Wait: time.Minute, MayWait: func(call string) bool { return call != "c" }})
		for _, call := range []string{"a", "b", "c"} {
			go func() { _, _ = g.Do(t.Context(), call) }()
			synctest.Wait()
		}
		_, err := g.Do(t.Context(), "d") // three calls have 1.05 s, and their round trip takes 1 s
		check.OK(t)(err)
		check.Equal(t, "round trips", fmt.Sprint(s.trips), "[[a b c] [d]]")
		check.Equal(t, "time until all answers", time.Since(began), 2*time.Second)
	})
}

func TestAPanicIsAnErrorOfItsCalls(t *testing.T) {
	_, answers := run(t, batch.Options[string, string]{}, "panic", "b")
	check.Equal(t, "answers", fmt.Sprint(answers),
		"map[b:B panic:the round trip of this call ended without an answer: panic: a fault in the service]")
}

// A call that may wait starts a round trip later, with those that came meanwhile. It waits no
// longer than for a call that may not, or for a full round trip.
func TestACallMayWaitForOthers(t *testing.T) {
	for name, c := range map[string]struct {
		calls []string // one every 100 ms; "-": none
		trips string
		ends  time.Duration // the last answer
	}{
		"alone":                 {[]string{"may 1"}, "[[may 1]]", 1250 * time.Millisecond},
		"in company":            {[]string{"may 1", "may 2"}, "[[may 1 may 2]]", 1250 * time.Millisecond},
		"with one that may not": {[]string{"may 1", "not 2"}, "[[may 1 not 2]]", 1100 * time.Millisecond},
		"until it is full":      {[]string{"may 1", "may 2", "may 3", "may 4"}, "[[may 1 may 2 may 3] [may 4]]", 2200 * time.Millisecond},
		"behind another":        {[]string{"not 1", "may 2", "may 3"}, "[[not 1] [may 2 may 3]]", 2 * time.Second},
		"after another":         {[]string{"may 1", "not 2", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "may 3"}, "[[may 1 not 2] [may 3]]", 2450 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(service)
				g := batch.New(batch.Options[string, string]{
					Send: s.send, MaxCalls: 3, Timeout: time.Minute,
					Wait: 250 * time.Millisecond, MayWait: func(call string) bool { return strings.HasPrefix(call, "may") },
				})
				began := time.Now()
				var all sync.WaitGroup
				for i, call := range c.calls {
					if i > 0 {
						time.Sleep(100 * time.Millisecond)
					}
					if call != "-" {
						all.Go(func() { check.OK(t)(g.Do(t.Context(), call)) })
					}
					synctest.Wait()
				}
				all.Wait()
				check.Equal(t, "round trips", fmt.Sprint(s.trips), c.trips)
				check.Equal(t, "time until the last answer", time.Since(began), c.ends)
			})
		})
	}
}

// A caller that leaves ends no round trip of others. A call that no round trip has taken is not made.
func TestACallerLeavesAtItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(service)
		g := batch.New(batch.Options[string, string]{Send: s.send, MaxCalls: 2, Timeout: time.Minute})
		type answer struct {
			err   error
			after time.Duration
		}
		call := func(name string, within time.Duration) <-chan answer {
			done, began := make(chan answer, 1), time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), within)
			go func() {
				defer cancel()
				_, err := g.Do(ctx, name)
				done <- answer{err, time.Since(began)}
			}()
			synctest.Wait()
			return done
		}
		a, b, c, d := call("a", time.Hour), call("b", 1500*time.Millisecond), call("c", time.Hour), call("d", 1500*time.Millisecond)
		check.Equal(t, "first call", <-a, answer{nil, time.Second})
		check.Equal(t, "call that left its round trip", <-b, answer{context.DeadlineExceeded, 1500 * time.Millisecond})
		check.Equal(t, "the other one of this round trip", <-c, answer{nil, 2 * time.Second})
		check.Equal(t, "call that was not taken", <-d, answer{context.DeadlineExceeded, 1500 * time.Millisecond})
		check.Equal(t, "round trips", fmt.Sprint(s.trips), "[[a] [b c]]")
	})
}

// A caller that must know the answer waits for it.
func TestFinishWaitsForItsRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(service)
		g := batch.New(batch.Options[string, string]{Send: s.send, MaxCalls: 2, Timeout: time.Minute})
		go func() { _, _ = g.Do(t.Context(), "a") }()
		synctest.Wait()
		go func() { _, _ = g.Do(t.Context(), "b") }()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		got, err := g.Finish(ctx, "c")
		check.OK(t)(err)
		check.Equal(t, "answer after the deadline", got, "C")
	})
}

// The context of a call that is alone ends its round trip.
func TestALoneCallEndsItsRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		g := batch.New(batch.Options[string, string]{MaxCalls: 2, Timeout: time.Minute, Send: func(ctx context.Context, all []string) []batch.Result[string] {
			<-ctx.Done()
			ended <- ctx.Err()
			return []batch.Result[string]{{Err: ctx.Err()}}
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		check.Err(t, "call", context.DeadlineExceeded)(g.Do(ctx, "a"))
		check.Equal(t, "end of the round trip", <-ended, context.DeadlineExceeded)
	})
}

// A call for which a shared round trip did nothing is made again alone, in its caller's context. Alone, the same
// answer is its own.
func TestACallIsMadeAgainAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var trips []int
		cause := errors.New("a row of another call")
		g := batch.New(batch.Options[string, string]{MaxCalls: 10, Timeout: time.Minute, Send: func(_ context.Context, all []string) []batch.Result[string] {
			mu.Lock()
			trips = append(trips, len(all))
			mu.Unlock()
			<-time.After(time.Second)
			results := make([]batch.Result[string], len(all))
			for i, call := range all {
				if results[i].Value = strings.ToUpper(call); call == "stubborn" || len(all) > 1 && call == "b" {
					results[i] = batch.Result[string]{Err: batch.AloneError{Cause: cause}}
				}
			}
			return results
		}})
		var calls sync.WaitGroup
		for call, want := range map[string]error{"a": nil, "b": nil, "stubborn": cause} {
			calls.Go(func() {
				got, err := g.Do(t.Context(), call)
				if !errors.Is(err, want) || err == nil && got != strings.ToUpper(call) {
					t.Errorf("%s: got %q, %v; want an answer, or %v", call, got, err, want)
				}
			})
		}
		calls.Wait()
		check.Equal(t, "a shared round trip among them", slices.Max(trips) > 1, true)
	})
}

// A round trip that fails for many calls is followed by a few lone ones at once. Those that wait for a locked row hold
// none of the others back.
func TestFewCallsAreMadeAloneAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		locked int           // of the calls
		most   int           // at once, beside the slow ones
		ends   time.Duration // the last call that met no locked row
	}{
		"none is slow":      {0, 2, 11*time.Second + 5*20*time.Millisecond},
		"the limit is slow": {2, 2, 11*time.Second + 100*time.Millisecond + 4*20*time.Millisecond},
		"more are slow":     {8, 2, 11*time.Second + 4*100*time.Millisecond + 20*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				quick, most := 0, 0
				g := batch.New(batch.Options[int, int]{MaxCalls: 100, Timeout: time.Minute, SlowAfter: 100 * time.Millisecond, Alone: 2,
					Wait: 10 * time.Second, MayWait: func(int) bool { return true },
					Send: func(_ context.Context, all []int) []batch.Result[int] {
						results := make([]batch.Result[int], len(all))
						switch {
						case len(all) > 1:
							time.Sleep(time.Second)
							for i := range results {
								results[i].Err = batch.AloneError{Cause: errors.New("refused")}
							}
						case all[0] < c.locked:
							time.Sleep(time.Hour)
						default:
							mu.Lock()
							quick++
							most = max(most, quick)
							mu.Unlock()
							time.Sleep(20 * time.Millisecond)
							mu.Lock()
							quick--
							mu.Unlock()
						}
						return results
					}})
				began, calls := time.Now(), sync.WaitGroup{}
				for call := range 10 {
					if call < c.locked {
						go func() { _, _ = g.Do(t.Context(), call) }()
					} else {
						calls.Go(func() { check.OK(t)(g.Do(t.Context(), call)) })
					}
				}
				calls.Wait()
				if took := time.Since(began); most > c.most || took > c.ends {
					t.Errorf("got %d at once and the last one after %v; want %d at most, within %v", most, took, c.most, c.ends)
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// A call whose caller leaves before it may be made alone is not made.
func TestACallerLeavesBeforeItsLoneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var alone atomic.Int32
		g := batch.New(batch.Options[int, int]{MaxCalls: 100, Timeout: time.Minute, Alone: 1, Wait: time.Second, MayWait: func(int) bool { return true },
			Send: func(_ context.Context, all []int) []batch.Result[int] {
				results := make([]batch.Result[int], len(all))
				if len(all) > 1 {
					for i := range results {
						results[i].Err = batch.AloneError{Cause: errors.New("refused")}
					}
					return results
				}
				alone.Add(1)
				time.Sleep(time.Minute)
				return results
			}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		first, second := make(chan error, 1), make(chan error, 1)
		for _, done := range []chan error{first, second} {
			go func() { _, err := g.Finish(ctx, len(first)); done <- err }()
		}
		time.Sleep(11 * time.Second)
		check.Equal(t, "lone calls", alone.Load(), 1)
		check.Equal(t, "callers that left", len(first)+len(second), 1)
		time.Sleep(time.Minute)
	})
}
