package functions_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// An operator changes a submitter's window and name, and lists the changes. A window above 1 is refused
// while nonce.strict.enabled is true, and a payer's window above its widest is refused always.
func TestSubmitterIsUpdated(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.Register(t, shopAccount, 4)
	h.registerPayer()
	for i := range 3 {
		h.createTx(fmt.Sprint(i))
	}
	taken := check.Value(h.Store.Acquire(t.Context(), shopAccount, "a/1", true))(t)
	var both []txmanager.Allocation
	for i, x := range taken.State.Queue[:2] {
		both = append(both, txmanager.Allocation{Tx: x, Nonce: uint64(i)})
	}
	check.OK(t)(h.Store.Commit(t.Context(), txmanager.Commit{Lease: taken.State.Lease, Allocations: both}))
	ann := h.clientOf(h.callerToken("ann"))
	for _, c := range []struct {
		path string
		body members
		want string // code and field
	}{
		{ofShop, members{"reason": "r"}, "400 INVALID_FIELD maxInFlight"},
		{ofShop, members{"maxInFlight": 1}, "400 INVALID_FIELD reason"},
		{ofShop, members{"maxInFlight": 0, "reason": "r"}, "400 INVALID_FIELD maxInFlight"},
		{ofShop, members{"maxInFlight": 10001, "reason": "r"}, "400 INVALID_FIELD maxInFlight"},
		{ofShop, members{"name": " hot", "reason": "r"}, "400 INVALID_FIELD name"},
		{ofShop, members{"name": fmt.Sprintf("%0101d", 1), "reason": "r"}, "400 INVALID_FIELD name"},
		{ofShop, members{"name": "a\nb", "reason": "r"}, "400 INVALID_FIELD name"},
		{ofShop, members{"callers": []string{"sub:1"}, "reason": "r"}, "400 UNSUPPORTED_FIELD callers"},
		{ofShop, members{"maxInFlight": 2, "reason": "r"}, "409 STRICT_WINDOW maxInFlight"},
		{"/admin/v1/submitters/eip155:1337:0x00000000000000000000000000000000000000a1", members{"maxInFlight": 1, "reason": "r"}, "404 UNKNOWN_SUBMITTER <nil>"},
	} {
		check.Equal(t, fmt.Sprint("PATCH ", c.path, " ", c.body), h.as("ann", "PATCH", c.path, c.body).is("code", "field"), c.want)
	}

	s, err := ann.UpdateSubmitter(t.Context(), shopAccount, client.SubmitterUpdate{MaxInFlight: new(1), Name: new("hot wallet")}, "slower")
	if err != nil || s.MaxInFlight != 1 || s.Name != "hot wallet" {
		t.Fatalf("update: got %+v, %v", s, err)
	}
	if s.NextNonce != 2 || *s.InFlightNonce != 0 || s.Queued != 1 {
		t.Errorf("narrowed: got %+v, want nonces 0 and 1 in flight and one intent in the queue", s)
	}
	taken = check.Value(h.Store.Acquire(t.Context(), shopAccount, "b/1", true))(t)
	if len(taken.State.Open) != 2 || taken.State.RoomInWindow() != 0 {
		t.Errorf("narrowed: got %d open and room for %d, want 2 and none", len(taken.State.Open), taken.State.RoomInWindow())
	}
	s = check.Value(ann.UpdateSubmitter(t.Context(), shopAccount, client.SubmitterUpdate{Name: new("")}, "no name"))(t)
	check.Equal(t, "remove the name", fmt.Sprintf("%d %q", s.MaxInFlight, s.Name), `1 ""`)
	check.OK(t)(ann.SetCallers(t.Context(), shopAccount, []string{"sub:shop", "sub:2"}, nil, "one more"))

	h.url = h.serve("FENCEPOST_NONCE_STRICT_ENABLED=false")
	check.Equal(t, "wider, without the strict mode", h.as("ann", "PATCH", ofShop, members{"maxInFlight": 9, "reason": "faster"}).is("maxInFlight"), "200 9")
	check.Equal(t, "a payer's, wider", h.as("ann", "PATCH", "/admin/v1/submitters/"+payer, members{"maxInFlight": 10000, "reason": "r"}).is("code", "field"), "409 PAYER_WINDOW maxInFlight")

	check.Equal(t, "retire a payer", h.as("ann", "POST", "/admin/v1/submitters/"+payer+"/retire", members{"reason": "r"}).is("code"), "409 SUBMITTER_IN_USE")
	check.Equal(t, "retire what has open work", h.as("ann", "POST", ofShop+"/retire", members{"reason": "r"}).is("code", "detail"),
		"409 SUBMITTER_IN_USE the submitter has queued intents, open transactions: suspend it, and retire it once it has none; nothing was changed")

	lines, err := collect(ann.ListChanges(t.Context(), shopAccount, 3), func(c client.SubmitterChange) string {
		return fmt.Sprint(c.Action, " ", c.Reason, " ", c.FromMaxInFlight, " ", c.ToMaxInFlight, " ", c.ToName != nil, " ", c.ToCallers)
	})
	check.OK(t)(err)
	check.Equal(t, "changes", lines, "UPDATE faster 1 9 false [] CALLERS one more 0 0 false [sub:shop sub:2] UPDATE no name 0 0 true [] UPDATE slower 4 1 true []")
	check.Equal(t, "changes by pages", column(h.allRows("changes", ofShop+"/changes", "", 3), "reason"), "faster one more no name slower")
}

// Submitters are listed by state, in their order or by name, page by page.
func TestSubmittersAreListed(t *testing.T) {
	t.Parallel()
	h := build(t)
	ann := h.clientOf(h.callerToken("ann"))
	of := func(n int) txmanager.Submitter { return txmanager.Submitter(fmt.Sprintf("eip155:1337:0x%040x", n)) }
	for n, name := range []string{"zoo", "", "ant", "bee", "", "cow", "bee"} {
		h.Register(t, of(n), 1)
		h.run(`update submitter set name = $2 where submitter = $1`, of(n), name)
	}
	h.run(`update submitter set status = 'SUSPENDED' where submitter in ($1, $2)`, of(1), of(3))
	h.run(`update submitter set status = 'RETIRED' where submitter = $1`, of(5))
	h.run(`insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}'), ($2, 1, '{}'), ($3, 1, '{}')`, of(0), of(3), of(6))
	h.run(`update protect_incident set closed_at = now(), closed_by = 'ann', mode = 'resume', reason = 'r' where submitter = $1`, of(0))
	for query, want := range map[string]string{
		"": "0 1 2 3 4 5 6", "&sort=submitter": "0 1 2 3 4 5 6", "&state=ACTIVE": "0 2 4 6", "&state=SUSPENDED": "1 3", "&state=RETIRED": "5", "&state=PROTECT": "3 6",
		"&sort=name": "2 3 6 5 0 1 4",
	} {
		for _, size := range []int{1, 2, 3, 10} {
			var got []string
			for _, row := range h.allRows("submitters", "/admin/v1/submitters", query, size) {
				id := fmt.Sprint(row["submitter"])
				got = append(got, id[len(id)-1:])
			}
			check.Equal(t, fmt.Sprintf("%q, %d a page", query, size), strings.Join(got, " "), want)
		}
	}
	got, err := collect(ann.ListSubmitters(t.Context(), client.SubmitterQuery{State: "PROTECT"}), func(s client.Submitter) string { return s.Status })
	check.Equal(t, fmt.Sprintf("statuses in PROTECT, error: %v", err), got, "SUSPENDED ACTIVE")
	first := h.as("ann", "GET", "/admin/v1/submitters?pageSize=1", nil).body["nextPageToken"]
	for query, want := range map[string]string{
		"state=GONE": "400 INVALID_FIELD state", "sort=queue": "400 INVALID_FIELD sort", "sort=name&state=ACTIVE": "400 INVALID_FIELD sort",
		fmt.Sprint("sort=name&pageToken=", first): "400 INVALID_FIELD pageToken", "queue=1": "400 UNSUPPORTED_FIELD queue",
	} {
		check.Equal(t, query, h.as("ann", "GET", "/admin/v1/submitters?"+query, nil).is("code", "field"), want)
	}
}

// A retired submitter is listed as such. Its callers' intents, its registration, and other acts are refused by one
// code.
func TestSubmitterIsRetired(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	ann := h.clientOf(h.callerToken("ann"))
	check.Equal(t, "retire", check.Value(ann.RetireSubmitter(t.Context(), shopAccount, "moved away"))(t).Status, "RETIRED")
	for _, c := range []struct {
		who, method, path string
		body              any
		want              string
	}{
		{"shop", "POST", "/api/v1/tx", intentOf("r"), "409 SUBMITTER_RETIRED"},
		{"ann", "POST", "/admin/v1/submitters", members{"submitter": shopAccount, "callers": []string{"sub:shop"}, "policy": "unlimited"}, "409 SUBMITTER_RETIRED"},
		{"ann", "POST", ofShop + "/suspend", members{"reason": "r"}, "409 SUBMITTER_RETIRED"},
		{"ann", "POST", ofShop + "/resume", members{"reason": "r"}, "409 SUBMITTER_RETIRED"},
		{"ann", "POST", ofShop + "/signer", members{"signer": "local", "reason": "r"}, "409 SUBMITTER_RETIRED"},
		{"ann", "PATCH", ofShop, members{"name": "r", "reason": "r"}, "409 SUBMITTER_RETIRED"},
		{"ann", "POST", ofShop + "/retire", members{"reason": "r"}, "409 TOO_LATE"},
	} {
		check.Equal(t, fmt.Sprint(c.method, " ", c.path), h.as(c.who, c.method, c.path, c.body).is("code"), c.want)
	}
	listed := check.Value(collect(ann.ListSubmitters(t.Context(), client.SubmitterQuery{}), func(s client.Submitter) string { return s.Status }))(t)
	check.Equal(t, "listed", listed, "RETIRED")
}
