package tasks_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/tasks"
)

// noon is a full minute, and seven seconds of it.
var noon = time.Date(2026, 11, 21, 12, 0, 7, 0, time.UTC)

// H20: a task that was lost must not take the sweep's wake-up with it, as it
// does where both are named by the token in force.
func TestH20SweepNamesAreByTheMinute(t *testing.T) {
	t.Parallel()
	cloud := newService(t)
	done(t, cloud.process(t, always("0123abcd")).Advance(t.Context(), alice, 7)) // taken, and lost
	for i, at := range []time.Time{noon, noon, noon.Add(52 * time.Second), noon.Add(53 * time.Second), noon.Add(2 * time.Minute)} {
		sweeper := cloud.process(t, always("0123abcd"))
		done(t, sweeper.Advance(t.Context(), alice, 7), swept(sweeper.Sweep(t.Context(), alice, nonce.KindAdvance, at)))
		if i == 1 { // what is in PROTECT is swept into a queue of its own
			done(t, swept(sweeper.Sweep(t.Context(), bob, nonce.KindAdvance, at)), swept(sweeper.Sweep(t.Context(), bob, nonce.KindConfirm, at)))
		}
	}
	minute := noon.Unix() / 60
	want := []string{
		alice.Digest() + "-0123abcd-a-7", // burnt: never taken again
		fmt.Sprintf("%s-0123abcd-s-%d", alice.Digest(), minute),
		fmt.Sprintf("%s-0123abcd-s-%d", bob.Digest(), minute),
		fmt.Sprintf("%s-0123abcd-s-%d", bob.Digest(), minute), // of another queue
		fmt.Sprintf("%s-0123abcd-s-%d", alice.Digest(), minute+1),
		fmt.Sprintf("%s-0123abcd-s-%d", alice.Digest(), minute+2),
	}
	if diff := cmp.Diff(want, cloud.names()); diff != "" {
		t.Errorf("tasks taken (-want +got):\n%s", diff)
	}
}

// H20: however many tenures begin, or none, a sweep's name must not follow the
// token, and two sweeps of one minute must not make two tasks.
func TestH20SweepBesideTenures(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	cloud := newService(t)
	in := store.Intent{TxID: "00000000-0000-0000-0000-000000000001", Submitter: alice, RequestID: "r", Caller: "shop", Payload: []byte(`{}`)}
	if _, err := db.Create(t.Context(), in, 10); err != nil {
		t.Fatal(err)
	}
	minutes := map[int64]bool{}
	for range 4 {
		found, minute, err := db.Overdue(t.Context(), 0, 10, time.Time{})
		if err != nil || len(found) != 1 {
			t.Fatalf("overdue: got %v, %v; want alice: nothing came of the sweep before", found, err)
		}
		done(t, swept(cloud.process(t, db.Epoch).Sweep(t.Context(), found[0], nonce.KindAdvance, minute)))
		minutes[minute.Unix()/60] = true
		tenure(t, db)
	}
	if got := cloud.names(); len(got) != len(minutes) {
		t.Errorf("tasks of four sweeps in %d minutes: got %q, want one for each minute", len(minutes), got)
	}
}

// tenure takes the lease and gives it back: the token goes up.
func tenure(t *testing.T, db storetest.Bundle) {
	t.Helper()
	taken, err := db.Take(t.Context(), alice, "a/1", true)
	if err != nil || !taken.Held {
		t.Fatalf("take: got %+v, %v; want it held", taken, err)
	}
	if _, err := db.Write(t.Context(), nonce.Write{Lease: taken.Work.Lease, Release: nonce.Abandon}); err != nil {
		t.Fatal(err)
	}
}

// H20: a database that was made anew or restored must not meet names that its
// predecessor has burnt.
func TestH20NamesCarryTheEpoch(t *testing.T) {
	t.Parallel()
	cloud := newService(t)
	first, second := anew(t), anew(t)
	var epochs []string
	made := map[string]string{} // by name, the epoch it was made under
	for _, db := range []*store.Store{first, second} {
		epoch, err := db.Epoch(t.Context())
		if err != nil || !regexp.MustCompile(`^[0-9a-f]{8}$`).MatchString(epoch) {
			t.Fatalf("epoch: got %q, %v; want eight hex digits", epoch, err)
		}
		epochs = append(epochs, epoch)
		before := len(cloud.names())
		everyName(t, cloud.process(t, db.Epoch))
		names := cloud.names()[before:]
		if len(names) != 7 {
			t.Errorf("epoch %s: got %d tasks %q, want one of each of the seven kinds", epoch, len(names), names)
		}
		for _, name := range names {
			if other, ok := made[name]; ok || !strings.HasPrefix(name, alice.Digest()+"-"+epoch+"-") {
				t.Errorf("%s under epoch %s: got it shared with %q, or without the epoch", name, epoch, other)
			}
			made[name] = epoch
		}
	}
	if epochs[0] == epochs[1] {
		t.Errorf("epochs of two databases: got %s twice, want two", epochs[0])
	}
}

// everyName makes a task of every kind, for the same tenure and times each time.
func everyName(t *testing.T, made *tasks.Tasks) {
	t.Helper()
	done(t,
		made.Advance(t.Context(), alice, 7),
		made.Rescue(t.Context(), alice, nonce.Taken{Token: 7, ExpiresAt: noon, FreeAt: noon.Add(time.Second)}),
		swept(made.Sweep(t.Context(), alice, nonce.KindAdvance, noon)),
	)
	for _, kind := range []nonce.Kind{nonce.KindAdvance, nonce.KindReceipt, nonce.KindConfirm, nonce.KindResubmit} {
		done(t, made.Poll(t.Context(), alice, kind, noon))
	}
}

// swept is the error of a sweep's task.
func swept(_ bool, err error) error { return err }
