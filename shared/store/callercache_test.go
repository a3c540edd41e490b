package store_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// The store queries a permitted pair of caller and submitter once, a refused one each time,
// and none after its first intent. An added caller is accepted at once. The insert refuses a
// removed caller, and the pair is queried again.
func TestUsable(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for _, s := range []txmanager.Submitter{alice, bob} {
		db.Register(t, s, 1)
	}
	run(t, db, `update submitter set callers = '{shop}' where submitter = $1`, alice)
	options := storetest.Options(db.URL, storetest.Rules)
	s, err := store.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	const nobody = txmanager.Submitter("eip155:1337:0x00000000000000000000000000000000000000ff")
	wants := func(what, caller string, trips int64, want map[txmanager.Submitter]bool) {
		t.Helper()
		ctx := telemetry.WithMeter(t.Context())
		got, err := s.UsableSubmitters(ctx, []string{caller}, []txmanager.Submitter{alice, bob, nobody, alice})
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: got %v (-want +got):\n%s", what, err, diff)
		}
		if cost := telemetry.MeterFrom(ctx).Cost(); cost.SQLRoundTrips != trips {
			t.Errorf("%s: got %d round trips, want %d", what, cost.SQLRoundTrips, trips)
		}
	}
	all := map[txmanager.Submitter]bool{alice: true, bob: true}
	wants("shop", "shop", 1, all)
	wants("another", "other", 1, map[txmanager.Submitter]bool{bob: true})
	wants("another, who may use one of them by now", "other", 1, map[txmanager.Submitter]bool{bob: true})
	run(t, db, `update submitter set callers = '{shop,other}' where submitter = $1`, alice)
	wants("another, just added", "other", 1, all)
	ctx := telemetry.WithMeter(t.Context())
	may, err := s.UsableSubmitters(ctx, []string{"other"}, []txmanager.Submitter{alice, bob})
	if cost := telemetry.MeterFrom(ctx).Cost(); err != nil || !may[alice] || !may[bob] || cost.SQLRoundTrips != 0 {
		t.Errorf("another, of what was allowed before: got %v, %v with %d round trips, want both without any", may, err, cost.SQLRoundTrips)
	}
	run(t, db, `update submitter set callers = '{shop}' where submitter = $1`, alice)
	in := intent(alice, "r")
	in.Caller = "other"
	if _, err := s.Create(t.Context(), in, 100); !errors.Is(err, store.ErrUnknownSubmitter) {
		t.Errorf("another, removed: got %v, want ErrUnknownSubmitter", err)
	}
	wants("another, removed and refused", "other", 1, map[txmanager.Submitter]bool{bob: true})
}

// A create fills the cache too: after it the store queries nothing.
func TestUsableAfterACreate(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	s, err := store.Open(t.Context(), storetest.Options(db.URL, storetest.Rules))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	in := intent(alice, "r")
	if _, err := s.Create(t.Context(), in, 100); err != nil {
		t.Fatal(err)
	}
	ctx := telemetry.WithMeter(t.Context())
	may, err := s.UsableSubmitters(ctx, []string{in.Caller}, []txmanager.Submitter{alice})
	if cost := telemetry.MeterFrom(ctx).Cost(); err != nil || !may[alice] || cost.SQLRoundTrips != 0 {
		t.Errorf("after a create: got %v, %v with %d round trips, want true without any", may, err, cost.SQLRoundTrips)
	}
}
