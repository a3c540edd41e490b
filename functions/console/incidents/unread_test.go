package incidents_test

import (
	"net/url"
	"testing"

	"github.com/fencepost/fencepost/functions/console/consoletest"
	"github.com/fencepost/fencepost/functions/console/incidents"
	"github.com/fencepost/fencepost/shared/client"
)

var unread = &client.Problem{Status: 503, Code: "UNAVAILABLE", Detail: "the chain could not be read"}

const releaseButton = "Release: accept the loss"

// The release after a trial has the answers of the trial, though the lost nonces read after it are fewer. If they
// cannot be read, there is no release, and the answers stay.
func TestReleaseIsWhatWasTried(t *testing.T) {
	t.Parallel()
	kept := []string{`name="request-6" value="id:&#34;&gt;&lt;script&gt;`, `name="request-7" value="other"`, `name="other-7" value="order-7"`, `name="hash-7" value="` + txHash + `"`, `name="incident" value="4"`}
	fewer, another := lost(8), protected()
	fewer.Nonces, another.Protect.Incident = nil, 5
	a := answers()
	a["POST "+admin+"/release"] = client.ReleaseReport{Submitter: shop, Incident: 4, NextNonce: 8, DryRun: true, Named: []client.Named{{Nonce: 6, RequestID: attack, Effect: "RECORDED"}}}
	c := consoletest.New(t, incidents.Section(), a)
	try := ticked(url.Values{"step": {"try"}})
	a["GET "+admin+"/lost"], a["GET "+admin] = fewer, another
	c.Refuses(console+"/protect/release", try, 200, 3, append(kept, releaseButton, "No request ends for nonce 7")...)

	a["GET "+admin+"/lost"], a["GET "+admin] = unread, protected()
	c.Refuses(console+"/protect/release", try, 200, 3, append(kept, "The lost nonces could not be read", "Try it again")...)
	c.Lacks(console+"/protect/release", try, releaseButton, "Not final yet")
	edit := ticked(url.Values{"step": {"edit"}})
	c.Refuses(console+"/protect/release", edit, 200, 2, append(kept, "could not be read again are kept")...)
	c.Lacks(console+"/protect/release", edit, "There is no lost nonce to name", "Not final yet")
}

// A page does not show a row as absent whose read failed.
func TestUnreadIsNotNone(t *testing.T) {
	t.Parallel()
	one := "/admin/v1/proposals/" + proposed
	a := consoletest.Answers{"GET " + admin: unread, "GET " + admin + "/lost": unread, "GET " + admin + "/foreign": unread, "GET " + one: unread,
		"POST " + one + "/approve": &client.Problem{Status: 409, Code: "PROPOSAL_STALE", Detail: "has changed"}}
	c := consoletest.New(t, incidents.Section(), a)
	for path, calls := range map[string]int{"/protect/release?mode=resync": 2, "/foreign/match?nonce=6": 1, "/foreign/write-off?nonce=6": 1} {
		c.Shows(console+path, calls, "could not be read")
		c.Lacks(console+path, nil, "No incident is open", "No foreign transaction with this nonce")
	}
	approve := url.Values{"reason": {"read it"}, "confirm": {"000001"}}
	c.Refuses("/console/proposals/"+proposed+"/approve", approve, 409, 2, "has changed")
	a["POST "+one+"/approve"] = &client.Problem{Status: 502}
	c.Refuses("/console/proposals/"+proposed+"/approve", approve, 502, 2, "The outcome is unknown")
}
