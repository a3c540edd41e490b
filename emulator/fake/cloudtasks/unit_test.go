package cloudtasks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fencepost/fencepost/shared/check"
)

func TestBackoffDoublesThenGrowsLinearlyThenStays(t *testing.T) {
	t.Parallel()
	c := &cloudtaskspb.RetryConfig{MinBackoff: durationpb.New(10 * time.Second), MaxBackoff: durationpb.New(300 * time.Second), MaxDoublings: 3}
	var got []float64
	for n := range 8 {
		got = append(got, backoff(c, n+1).Seconds())
	}
	want := []float64{10, 20, 40, 80, 160, 240, 300, 300} // the proto's own example
	check.Same(t, "backoff", got, want)
	c.MaxDoublings = 16
	check.Equal(t, "a millionth retry", backoff(c, 1_000_000), 300*time.Second)
}

func TestRetriesEndOnlyWhenEveryLimitThatIsSetIsReached(t *testing.T) {
	t.Parallel()
	start := time.Now()
	for _, c := range []struct {
		name     string
		attempts int32
		duration time.Duration
		made     int
		after    time.Duration
		want     bool
	}{
		{"attempts alone, one left", 3, 0, 2, time.Hour, false},
		{"attempts alone, reached", 3, 0, 3, 0, true},
		{"duration alone, not yet", -1, time.Minute, 1000, 59 * time.Second, false},
		{"duration alone, reached", -1, time.Minute, 1, time.Minute, true},
		{"both, only attempts reached", 3, time.Minute, 3, time.Second, false},
		{"both, only duration reached", 3, time.Minute, 2, time.Hour, false},
		{"both reached", 3, time.Minute, 3, time.Minute, true},
		{"no limit", -1, 0, 1_000_000, 30 * 24 * time.Hour, false},
		{"no limit but retention", -1, 0, 1, 31 * 24 * time.Hour, true},
	} {
		config := &cloudtaskspb.RetryConfig{MaxAttempts: c.attempts, MaxRetryDuration: durationpb.New(c.duration)}
		check.Equal(t, c.name, exhausted(config, c.made, start, start, start.Add(c.after)), c.want)
	}
}

func TestBackoffIsCutToWholeSecondsFromOneSecondUp(t *testing.T) {
	t.Parallel()
	c := &cloudtaskspb.RetryConfig{MinBackoff: durationpb.New(250 * time.Millisecond), MaxBackoff: durationpb.New(2900 * time.Millisecond), MaxRetryDuration: durationpb.New(3700 * time.Millisecond)}
	fillRetry(c)
	got := []time.Duration{c.MinBackoff.AsDuration(), c.MaxBackoff.AsDuration(), c.MaxRetryDuration.AsDuration()}
	want := []time.Duration{250 * time.Millisecond, 2 * time.Second, 3 * time.Second}
	check.Same(t, "durations", got, want)
}

func TestPaceIsATokenBucket(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := newPace(10, 3, now)
	for range 3 {
		check.Equal(t, "the wait with tokens left", p.wait(now), 0)
		p.take()
	}
	check.Equal(t, "the wait after the burst", p.wait(now), 100*time.Millisecond)
	now = now.Add(time.Hour)
	for range 3 {
		p.take()
	}
	p.wait(now)
	if got := p.tokens; got > 3 {
		t.Errorf("got %v tokens after an hour, want at most the burst of 3", got)
	}
}

func TestOverloadHalvesThePaceAndSuccessRestoresIt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := newPace(100, 100, now)
	shares := []float64{}
	for _, status := range []int{500, 429, 503, 503, 503, 200} {
		p.heed(answer{status: status, answered: true}, now)
		shares = append(shares, p.share)
	}
	check.Same(t, "share of the rate after 500, 429, 503, 503, 503, 200", shares, []float64{1, .5, .25, .125, .125, .1875})
	if p.wait(now) == 0 {
		t.Error("got no wait after overload, want the burst to be gone")
	}
	p.heed(answer{status: 503, retryAfter: time.Minute}, now)
	check.Equal(t, "the hold for Retry-After: 60", p.wait(now), longestHold)
}

func TestRetryAfterIsSecondsOrADate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "soon": 0,
		"Sun, 01 Nov 2026 12:00:30 GMT": 30 * time.Second,
		"Sun, 01 Nov 2026 11:00:00 GMT": 0,
	} {
		check.Equal(t, fmt.Sprintf("Retry-After %q", header), retryAfter(header, now), want)
	}
}

func TestBurntNamesComeFreeAndAreForgotten(t *testing.T) {
	t.Parallel()
	var b burntNames
	start := time.Now()
	b.burn("a", start, time.Minute)
	b.burn("b", start.Add(30*time.Second), time.Minute)
	if !b.has("a", start.Add(59*time.Second)) || b.has("a", start.Add(time.Minute)) {
		t.Error("got a name burnt for another time than its window, want exactly its window")
	}
	b.burn("c", start.Add(80*time.Second), time.Minute)
	if got := len(b.until); got != 2 || len(b.order) != 2 {
		t.Errorf("got %d names kept, want a forgotten and b and c kept", got)
	}
	b.burn("d", start, 0)
	if b.has("d", start) {
		t.Error("got a name burnt without a window, want it free")
	}
}

func TestScheduleGivesTheEarliestOfThoseLeft(t *testing.T) {
	t.Parallel()
	start := time.Now()
	var s schedule
	all := make([]*task, 100)
	for i, n := range rand.Perm(len(all)) { // ten are due at the same time
		all[i] = &task{id: fmt.Sprint(n), dueAt: start.Add(time.Duration(n%10) * time.Millisecond)}
		s.add(all[i])
	}
	var got, want []time.Duration
	for i, one := range all {
		if i%3 == 0 {
			s.drop(one)
			s.drop(one) // it is out already
			continue
		}
		want = append(want, one.dueAt.Sub(start))
	}
	slices.Sort(want)
	for len(s) > 0 {
		got = append(got, s.earliest().dueAt.Sub(start))
	}
	check.Same(t, "times of the tasks left", got, want)
}

func TestFaultsDrawCopiesAndDelaysFromTheirRanges(t *testing.T) {
	t.Parallel()
	s := &seam{Faults: Faults{Copies: 3, Delay: time.Second}, rand: rand.New(rand.NewPCG(1, 1))}
	counts, pauses := make(map[int]bool), make(map[time.Duration]bool)
	for range 100 {
		drawn := s.delays()
		counts[len(drawn)] = true
		for _, pause := range drawn {
			pauses[pause] = true
			if pause < 0 || pause > time.Second {
				t.Errorf("got a delay of %v, want 0 to 1s", pause)
			}
		}
	}
	check.Same(t, "numbers of copies", counts, map[int]bool{1: true, 2: true, 3: true})
	if len(pauses) < 100 {
		t.Errorf("got %d different delays in 100 draws, want a new one for every copy", len(pauses))
	}
}

func TestDeletedQueueTakesNoTask(t *testing.T) {
	t.Parallel()
	s := check.Value(Start(t.Context(), Options{}))(t)
	t.Cleanup(s.Close)
	const location = "projects/p/locations/l"
	check.OK(t)(s.CreateQueue(t.Context(), &cloudtaskspb.CreateQueueRequest{Parent: location, Queue: &cloudtaskspb.Queue{Name: location + "/queues/q"}}))
	q := check.Value(s.find(location + "/queues/q"))(t) // as CreateTask does, just before
	check.OK(t)(s.DeleteQueue(t.Context(), &cloudtaskspb.DeleteQueueRequest{Name: q.name}))
	check.Err(t, "a task of a deleted queue", errNoQueue)(q.add(&task{id: "x", request: &cloudtaskspb.HttpRequest{}}, cloudtaskspb.Task_BASIC, false))
}
