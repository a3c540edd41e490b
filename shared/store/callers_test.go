package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	eventlog "github.com/fencepost/fencepost/shared/store/events"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A name says of what kind it is. One that was written before names had kinds is read as
// one of its kind, and never as one that has a kind.
func TestFullCallers(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		full      string
		spellings []string
	}{
		"shop@example.com":       {"email:shop@example.com", []string{"email:shop@example.com", "shop@example.com"}},
		"1034":                   {"sub:1034", []string{"sub:1034", "1034"}},
		"email:shop@example.com": {"email:shop@example.com", []string{"email:shop@example.com", "shop@example.com"}},
		"sub:shop@example.com":   {"sub:shop@example.com", []string{"sub:shop@example.com"}},
		"email:1034":             {"email:1034", []string{"email:1034"}},
		"sub:hooks":              {"sub:hooks", []string{"sub:hooks"}},
		"sub:transfer":           {"sub:transfer", []string{"sub:transfer"}},
		"sub:*":                  {"sub:*", []string{"sub:*"}},
		"sub:":                   {"sub:", []string{"sub:"}},
		"sub:handler:wage":       {"sub:handler:wage", []string{"sub:handler:wage"}},
		"sub:email:a@b":          {"sub:email:a@b", []string{"sub:email:a@b"}},
		"email:sub:a@b":          {"email:sub:a@b", []string{"email:sub:a@b"}},
		"handler:wage":           {"handler:wage", []string{"handler:wage"}},
		"hooks":                  {"hooks", []string{"hooks"}}, "transfer": {"transfer", []string{"transfer"}}, "*": {"*", []string{"*"}}, "": {"", []string{""}},
	} {
		check.Equal(t, name+" in full", store.FullCaller(name), want.full)
		check.Same(t, name+", spellings", store.Spellings(want.full), want.spellings)
	}
}

// at are alice's callers, by SQL, as they were before.
func at(t *testing.T, callers ...string) storetest.Bundle {
	t.Helper()
	db := registered(t, 10, alice)
	db.Run(t, `update submitter set callers = $2 where submitter = $1`, alice, callers)
	return db
}

// by is an intent of who has the names.
func by(requestID string, names ...string) store.Intent {
	in := intent(alice, requestID)
	in.Caller, in.Names = names[0], names
	return in
}

func change(callers []string, succeeds ...string) store.CallersChange {
	c := store.CallersChange{Submitter: alice, Callers: callers, Succeeds: map[string]string{}, By: "email:ann@example.com", Reason: "a test"}
	for i := 0; i+1 < len(succeeds); i += 2 {
		c.Succeeds[succeeds[i]] = succeeds[i+1]
	}
	return c
}

func put(t *testing.T, db storetest.Bundle, callers []string, succeeds ...string) {
	t.Helper()
	if _, _, err := db.Store.PutCallers(t.Context(), change(callers, succeeds...)); err != nil {
		t.Fatalf("callers %q, %q: %v", callers, succeeds, err)
	}
}

// A caller with two names is stored under the listed one, or under the first if both are
// listed. If "*" lets it post, it is stored under its own name.
func TestTheListedNameIsStored(t *testing.T) {
	t.Parallel()
	names := []string{"sub:7", "7", "email:shop@example.com", "shop@example.com"}
	for i, c := range []struct {
		listed []string
		also   string // a name of who asks
		want   string
		err    error
	}{
		{[]string{"email:shop@example.com"}, "", "email:shop@example.com", nil},
		{[]string{"sub:7"}, "", "sub:7", nil},
		{[]string{"email:shop@example.com", "sub:7"}, "", "sub:7", nil},
		{[]string{"shop@example.com"}, "", "shop@example.com", nil},
		{[]string{"*"}, "*", "sub:7", nil},
		{[]string{"*", "shop@example.com"}, "*", "shop@example.com", nil},
		{[]string{"*"}, "", "", store.ErrAnyCaller},
		{[]string{"email:other@example.com", "sub:8", "hooks", "handler:wage"}, "*", "", store.ErrUnknownSubmitter},
	} {
		for _, policy := range []bool{false, true} {
			db := at(t, c.listed...)
			if policy {
				limit(t, db, store.Policy{MaxPerMinute: new(10)})
			}
			in := by(fmt.Sprint("r", i), names...)
			if c.also != "" {
				in.Names = append(slices.Clone(in.Names), c.also)
			}
			_, err := db.Store.Create(t.Context(), in, 10)
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("%q: got %v, want %v", c.listed, err, c.err)
			}
			check.Equal(t, fmt.Sprintf("%q: stored under", c.listed), value[string](t, db, `select coalesce(min(caller), '') from managed_tx`), c.want)
		}
	}
}

// seen are the requests that the viewer is shown, in every way of asking.
func seen(t *testing.T, db storetest.Bundle, txIDs map[string]string, names ...string) (found []string) {
	t.Helper()
	v := store.Viewer{Caller: names[0], Names: names}
	page, _, err := db.List(t.Context(), store.ListQuery{Submitter: alice, Size: 100}, v)
	check.OK(t)(err)
	found = requestIDs(page)
	slices.Sort(found)
	for name, id := range txIDs {
		_, _, err := db.TxWaiting(t.Context(), id, v)
		_, _, byRequest := db.TxWaitingByRequest(t.Context(), alice, name, v)
		_, _, after := db.List(t.Context(), store.ListQuery{Submitter: alice, After: id, Size: 100}, v)
		want := slices.Contains(found, name)
		if (err == nil) != want || (byRequest == nil) != want || (after == nil) != want {
			t.Errorf("%s of %q: listed %t, by its id %v, by its request %v, as a place in the list %v", name, names, want, err, byRequest, after)
		}
	}
	return found
}

// A successor sees the intents stored under the old name, over any number of steps. A removed
// caller sees nothing, at once. A repeated post is a retry.
func TestSuccession(t *testing.T) {
	t.Parallel()
	db := at(t, "shop@example.com", "bank")
	txIDs := map[string]string{}
	create := func(requestID string, names ...string) error {
		got, err := db.Store.Create(t.Context(), by(requestID, names...), 100)
		if err == nil && txIDs[requestID] == "" {
			txIDs[requestID] = got.TxID
		}
		if err == nil && got.TxID != txIDs[requestID] {
			t.Errorf("%s once more: got %s, want %s", requestID, got.TxID, txIDs[requestID])
		}
		return err
	}
	shop, bank := store.Spellings("email:shop@example.com"), store.Spellings("sub:bank")
	check.OK(t)(create("one", shop...))
	check.OK(t)(create("of the bank", bank...))
	put(t, db, []string{"email:shop@example.com", "sub:bank"}) // the same, in full
	check.OK(t)(create("one", shop...))
	check.OK(t)(create("two", shop...))
	check.Same(t, "the shop sees", seen(t, db, txIDs, shop...), []string{"one", "two"})

	put(t, db, []string{"sub:2", "sub:bank"}, "sub:2", "email:shop@example.com")
	check.Err(t, "who was taken off posts", store.ErrUnknownSubmitter)(create("three", shop...))
	check.Err(t, "who was taken off posts again", store.ErrUnknownSubmitter)(create("one", shop...))
	check.Equal(t, "number that who was taken off sees", len(seen(t, db, txIDs, shop...)), 0)
	check.OK(t)(create("one", "sub:2"))
	check.OK(t)(create("three", "sub:2"))
	check.Err(t, "who was taken off cancels", store.ErrNotFound)(decide(t, db, txIDs["two"], store.Viewer{Caller: shop[0], Names: shop}, txmanager.ActionCancel))

	put(t, db, []string{"sub:3", "sub:bank"}, "sub:3", "sub:2")
	check.Same(t, "the third sees", seen(t, db, txIDs, "sub:3"), []string{"one", "three", "two"})
	for _, names := range [][]string{shop, {"sub:2"}} {
		check.Equal(t, fmt.Sprintf("number that %q sees", names), len(seen(t, db, txIDs, names...)), 0)
	}
	check.OK(t)(create("one", "sub:3"))
	check.OK(t)(create("two", "sub:3"))
	out := check.Value(decide(t, db, txIDs["two"], store.Viewer{Caller: "sub:3"}, txmanager.ActionCancel))(t)
	check.Equal(t, "sub-state after the successor's cancel", out.SubState, txmanager.Cancelled)

	put(t, db, []string{"email:shop@example.com", "sub:bank"}, "email:shop@example.com", "sub:3") // back
	check.Same(t, "the first, back, sees", seen(t, db, txIDs, shop...), []string{"one", "three", "two"})
	check.Equal(t, "number that the third, gone, sees", len(seen(t, db, txIDs, "sub:3")), 0)
	check.Same(t, "the bank, all the while, sees", seen(t, db, txIDs, bank...), []string{"of the bank"})
	check.Same(t, "on record",
		value[[]string](t, db, `select array_agg(concat_ws(' ', action, by, array_to_string(from_callers, ',') || '>' || array_to_string(to_callers, ','), succeeds) order by id) from submitter_change`),
		[]string{
			`CALLERS email:ann@example.com shop@example.com,bank>email:shop@example.com,sub:bank {}`,
			`CALLERS email:ann@example.com email:shop@example.com,sub:bank>sub:2,sub:bank {"sub:2": "email:shop@example.com"}`,
			`CALLERS email:ann@example.com sub:2,sub:bank>sub:3,sub:bank {"sub:3": "sub:2"}`,
			`CALLERS email:ann@example.com sub:3,sub:bank>email:shop@example.com,sub:bank {"email:shop@example.com": "sub:3"}`,
		})
	check.Same(t, "callers", view(t, db).Callers, []string{"email:shop@example.com", "sub:bank"})
}

func view(t *testing.T, db storetest.Bundle) store.SubmitterView {
	t.Helper()
	return check.Value(db.Store.Submitter(t.Context(), alice))(t)
}

// What would give one caller another's, or say nothing, is refused, and changes nothing.
func TestCallersThatDoNotFit(t *testing.T) {
	t.Parallel()
	db := at(t, "sub:1", "sub:2", "sub:9")
	put(t, db, []string{"sub:2", "sub:3"}, "sub:3", "sub:1")
	before := view(t, db)
	for name, c := range map[string]store.CallersChange{
		"a successor that is not listed":      change([]string{"sub:3"}, "sub:4", "sub:2"),
		"one that is still listed":            change([]string{"sub:2", "sub:3", "sub:4"}, "sub:4", "sub:2"),
		"itself":                              change([]string{"sub:2", "sub:3"}, "sub:2", "sub:2"),
		"two successors":                      change([]string{"sub:3", "sub:4", "sub:5"}, "sub:4", "sub:2", "sub:5", "sub:2"),
		"one that another has succeeded":      change([]string{"sub:2", "sub:3", "sub:4"}, "sub:4", "sub:1"),
		"one that never was there":            change([]string{"sub:2", "sub:3", "sub:4"}, "sub:4", "sub:7"),
		"who was succeeded, listed again":     change([]string{"sub:1", "sub:2", "sub:3"}),
		"who was succeeded, as the successor": change([]string{"sub:1", "sub:3"}, "sub:1", "sub:2"),
		"everybody, with who was succeeded":   change([]string{"*"}),
		"the coordinator":                     change([]string{store.PayoutCaller}),
	} {
		var refused store.CallersError
		if _, changed, err := db.Store.PutCallers(t.Context(), c); changed || !errors.As(err, &refused) {
			t.Errorf("%s: got %t, %v; want an ErrCallers", name, changed, err)
		}
	}
	check.Same(t, "after refusals", view(t, db), before)
	c := change([]string{"sub:2", "sub:3"}, "sub:3", "sub:1")
	if _, changed, err := db.Store.PutCallers(t.Context(), c); err != nil || changed {
		t.Errorf("the same again: got %t, %v; want nothing changed", changed, err)
	}
	check.Err(t, "one that was taken off before", nil)(db.Store.PutCallers(t.Context(), change([]string{"sub:2", "sub:3", "sub:4"}, "sub:4", "sub:9")))
	c.Submitter = bob
	check.Err(t, "no such submitter", store.ErrUnknownSubmitter)(db.Store.PutCallers(t.Context(), c))
}

// Events are shown as transactions are: to whom they are now.
func TestEventsOfASuccession(t *testing.T) {
	t.Parallel()
	db, _ := withEvents(t, store.EventsKept)
	for _, s := range []txmanager.Submitter{alice, bob} {
		db.Register(t, s, 1)
		db.Run(t, `update submitter set callers = '{shop}' where submitter = $1`, s)
		in := intent(s, "first")
		in.Caller, in.Names = "sub:shop", []string{"sub:shop", "shop"}
		check.OK(t)(db.Store.Create(t.Context(), in, 10))
	}
	put(t, db, []string{"sub:2"}, "sub:2", "sub:shop")
	check.OK(t)(db.Store.Create(t.Context(), by("second", "sub:2"), 10))
	page(t, db, 0, operator) // gives the positions
	for name, c := range map[string]struct {
		names []string
		sub   txmanager.Submitter
		want  int
	}{
		"the successor":                      {[]string{"sub:2"}, "", 2},
		"the successor, of one submitter":    {[]string{"sub:2"}, alice, 2},
		"the successor, of the other":        {[]string{"sub:2"}, bob, 0},
		"who was succeeded at one submitter": {[]string{"sub:shop", "shop"}, "", 1},
		"who was succeeded, there":           {[]string{"sub:shop", "shop"}, alice, 0},
		"who was succeeded, at the other":    {[]string{"sub:shop", "shop"}, bob, 1},
		"a stranger":                         {[]string{"sub:3", "3", "*"}, "", 0},
	} {
		got, _, err := db.EventLog.Events(t.Context(), eventlog.EventQuery{Submitter: c.sub, Size: 9}, store.Viewer{Caller: c.names[0], Names: c.names})
		if err != nil || len(got) != c.want {
			t.Errorf("%s: got %d events, %v; want %d", name, len(got), err, c.want)
		}
	}
}

// The store queries a permitted pair of caller and submitter once, a refused one each time,
// and none after its first intent. An added caller is accepted at once. The insert refuses a
// removed caller, and the pair is queried again.
func TestUsable(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	db.Run(t, `update submitter set callers = '{shop}' where submitter = $1`, alice)
	s := reopened(t, db, func(*store.Options) {})
	const nobody = txmanager.Submitter("eip155:1337:0x00000000000000000000000000000000000000ff")
	wants := func(what, caller string, trips int64, want map[txmanager.Submitter]bool, asked ...txmanager.Submitter) {
		t.Helper()
		ctx := telemetry.WithMeter(t.Context())
		check.Same(t, what, check.Value(s.UsableSubmitters(ctx, []string{caller}, asked))(t), want)
		check.Equal(t, what+": round trips", telemetry.MeterFrom(ctx).Cost().SQLRoundTrips, trips)
	}
	all, onlyBob := map[txmanager.Submitter]bool{alice: true, bob: true}, map[txmanager.Submitter]bool{bob: true}
	wants("shop", "shop", 1, all, alice, bob, nobody, alice)
	wants("another", "other", 1, onlyBob, alice, bob, nobody, alice)
	wants("another, who may use one of them by now", "other", 1, onlyBob, alice, bob, nobody, alice)
	db.Run(t, `update submitter set callers = '{shop,other}' where submitter = $1`, alice)
	wants("another, just added", "other", 1, all, alice, bob, nobody, alice)
	wants("another, of what was allowed before", "other", 0, all, alice, bob)
	db.Run(t, `update submitter set callers = '{shop}' where submitter = $1`, alice)
	check.Err(t, "another, removed", store.ErrUnknownSubmitter)(s.Create(t.Context(), of("other", intent(alice, "r")), 100))
	wants("another, removed and refused", "other", 1, onlyBob, alice, bob, nobody, alice)
	s = reopened(t, db, func(*store.Options) {})
	check.OK(t)(s.Create(t.Context(), intent(alice, "r"), 100))
	wants("the shop, after a create", "shop", 0, map[txmanager.Submitter]bool{alice: true}, alice)
}
