package batch_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/shared/batch"
	"github.com/fencepost/fencepost/shared/check"
)

// inOneLane makes the calls of groups in one lane, each 100 ms after the last, and returns what
// each round trip carried and when it began. A call that begins with "slow" takes four seconds, others one.
func inOneLane(t *testing.T, pause batch.Pause, slowAfter time.Duration, limits map[string]time.Duration, calls ...string) string {
	t.Helper()
	var (
		mu    sync.Mutex
		trips []string
	)
	synctest.Test(t, func(t *testing.T) {
		began, lane := time.Now(), &batch.Lane{Pause: pause}
		open := func(name string) *batch.Group[string, string] {
			return batch.New(batch.Options[string, string]{Lane: lane, MaxCalls: 100, Timeout: time.Minute, SlowAfter: slowAfter,
				Send: func(_ context.Context, all []string) []batch.Result[string] {
					mu.Lock()
					trips = append(trips, fmt.Sprintf("%v %s %v", time.Since(began).Truncate(time.Second), name, all))
					mu.Unlock()
					time.Sleep(time.Second)
					if strings.HasPrefix(all[0], "slow") {
						time.Sleep(3 * time.Second)
					}
					return make([]batch.Result[string], len(all))
				}})
		}
		groups, done := map[byte]*batch.Group[string, string]{'A': open("A"), 'B': open("B"), 'C': open("C")}, make(chan error)
		for _, call := range calls {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				if limit, ok := limits[call]; ok {
					ctx, cancel = context.WithTimeout(t.Context(), limit)
				}
				defer cancel()
				_, err := groups[call[len(call)-1]].Do(ctx, call)
				done <- err
			}()
			time.Sleep(100 * time.Millisecond)
		}
		for range calls {
			<-done
		}
	})
	return strings.Join(trips, ", ")
}

func TestGroupsOfALaneTakeTurns(t *testing.T) {
	check.Equal(t, "round trips", inOneLane(t, batch.Pause{}, 0, nil, "1A", "2B", "3A", "4B", "5A"), "0s A [1A], 1s B [2B 4B], 2s A [3A 5A]")
	check.Equal(t, "round trips of three", inOneLane(t, batch.Pause{}, 0, nil, "1A", "2B", "3C"), "0s A [1A], 1s B [2B], 2s C [3C]")
}

// A round trip of several calls is followed by a pause, unless it was slow. One of a single call is not.
func TestALaneRests(t *testing.T) {
	long := batch.Pause{Factor: 2, Max: time.Minute}
	check.Equal(t, "after one of two calls", inOneLane(t, long, 0, nil, "1A", "2B", "3B", "4A", "5A"), "0s A [1A], 1s B [2B 3B], 4s A [4A 5A]")
	short := batch.Pause{Factor: 2, Max: time.Second}
	check.Equal(t, "for the longest pause", inOneLane(t, short, 0, nil, "1A", "2B", "3B", "4A", "5A"), "0s A [1A], 1s B [2B 3B], 3s A [4A 5A]")
	check.Equal(t, "after those of one", inOneLane(t, long, 0, nil, "1A", "2B", "3C"), "0s A [1A], 1s B [2B], 2s C [3C]")
	check.Equal(t, "after a slow one", inOneLane(t, long, 2*time.Second, nil, "1A", "slow2B", "3B", "4A"), "0s A [1A], 1s B [slow2B 3B], 3s A [4A]")
}

func TestASlowRoundTripFreesTheLane(t *testing.T) {
	check.Equal(t, "round trips", inOneLane(t, batch.Pause{}, 2*time.Second, nil, "slow1A", "2B", "3A"), "0s A [slow1A], 2s B [2B], 3s A [3A]")
	// One of several calls delays the other groups no longer. Its own group begins the next one later.
	check.Equal(t, "beside one of five calls", inOneLane(t, batch.Pause{}, 2*time.Second, nil, "1A", "slow2B", "3B", "4B", "5B", "6B", "7A"),
		"0s A [1A], 1s B [slow2B 3B 4B 5B 6B], 3s A [7A]")
}

// TestAGroupWithoutCallsGivesItsTurnAway has a group whose only call ends while it waits for the lane.
func TestAGroupWithoutCallsGivesItsTurnAway(t *testing.T) {
	limits := map[string]time.Duration{"2B": 300 * time.Millisecond}
	check.Equal(t, "round trips", inOneLane(t, batch.Pause{}, 0, limits, "1A", "2B", "3A"), "0s A [1A], 1s A [3A]")
	limits["2B"] = 100 * time.Millisecond
	check.Equal(t, "round trips", inOneLane(t, batch.Pause{}, 0, limits, "1A", "2B", "3A", "4B"), "0s A [1A], 1s B [4B], 2s A [3A]")
}
