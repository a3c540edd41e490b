// Package incidents has the console's pages about PROTECT incidents, foreign transactions and proposals.
package incidents

import (
	"embed"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

//go:embed templates/*.html
var templates embed.FS

// Section returns the pages. The menu leads to the proposals; pages about submitters lead to their incidents.
func Section() page.Section {
	s := page.Section{
		Templates: templates,
		Menu:      []page.Link{{Path: "/console/proposals", Name: "Proposals"}},
		Routes: slices.Concat([]page.Route{
			{Pattern: "GET /console/submitters/{submitter}/protect", Handle: showIncident},
			{Pattern: "GET /console/submitters/{submitter}/foreign", Handle: listForeign},
			{Pattern: "GET /console/proposals", Handle: listProposals},
			{Pattern: "GET /console/proposals/{id}", Handle: showProposal},
		},
			page.Form("/console/submitters/{submitter}/protect/release", release),
			page.Form("/console/submitters/{submitter}/foreign/match", matchForeign),
			page.Form("/console/submitters/{submitter}/foreign/write-off", writeOff),
		),
	}
	for _, act := range proposalActs {
		s.Routes = append(s.Routes, page.Form("/console/proposals/{id}/"+act.Name, decide(act))...)
	}
	return s
}

// patience is how long a page waits for what needs the chain's nodes. The rest of the page is drawn without it.
const patience = 8 * time.Second

// ways has the way on after an act of these pages was refused. The fields are those of a release.
var ways = page.Ways{Fields: map[string]string{
	"requests": "For each nonce that the text lists, choose the request that the transaction was, or \"no request of ours\". A name that the chain contradicts is another request's: correct it. Nothing was changed.",
	"hashes":   "Give the hash of the transaction that consumed the nonce, from a block explorer or the caller's log. If no node has its receipt, connect an archive node, or state how you know that the request was carried out.",
	"executed": "A statement counts only for a nonce with a requestId whose transaction no node shows. Clear the statement, or the hash.",
	"count":    "The finalized count has changed since you read it. The form now has the new one: look at the nonces again, then try again.",
	"fill":     "Give the largest window that the account can have had, or leave the field empty.",
	"mode":     "This incident does not end by this kind of release yet: the text says why. Go back to the incident's page and choose the other kind, or wait.",
	"incident": "Open the incident's page again and start from there.",
}, Codes: map[string]string{
	"TOO_LATE":           "Another operator was faster, or the state has changed. Nothing was changed by you. Open the page again to see the state.",
	"NOT_LEADER":         "The submitter is being served at this moment. Nothing was changed. Wait a few seconds and send the form again.",
	"SAME_OPERATOR":      "You proposed this act. Two persons must agree: ask another operator to approve it.",
	"PROPOSAL_STALE":     "What the act is about has changed since it was proposed, so it can never be carried out. Look at the present state and propose it again.",
	"PROPOSAL_EXPIRED":   "The time to approve has passed. Propose the act again.",
	"PROPOSER_REMOVED":   "The proposer is no operator any more. Ask why before another operator proposes the act again.",
	"PROOF_USED":         "That transaction already proves another payout. One payment proves one request: look for the right transaction.",
	"UNKNOWN_SUBMITTER":  "This deployment has no such submitter. Check the address of the page.",
	"NOT_A_PLANNED_MOVE": "The database was not moved as planned. Release each submitter on its page.",
}, Causes: map[string]string{
	"UNAVAILABLE": "The nodes do not answer or do not agree, or blocks are still being read: each minute reads about 2,000.",
}}

// wayOn is the way on after a refusal; "": its own text says enough, or there was none.
func wayOn(err error) string {
	if errors.Is(err, errPart) && !errors.Is(err, client.ErrUnknown) {
		return "Some of the transactions were written off before that. Read the list, then send the form again for the rest."
	}
	if text := ways.After(err); text != "" || !strings.HasPrefix(client.CodeOf(err), "INVALID") {
		return text
	}
	return "Correct the field that the text names. Nothing was changed."
}
