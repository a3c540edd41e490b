// Package incidents has the console's pages about PROTECT incidents, foreign transactions and proposals.
package incidents

import (
	"embed"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
)

//go:embed templates/*.html
var templates embed.FS

// Section returns the pages. The menu leads to the proposals; pages about submitters lead to their incidents.
func Section() page.Section {
	return page.Section{
		Templates: templates,
		Menu:      []page.Link{{Path: "/console/proposals", Name: "Proposals"}},
		Routes: []page.Route{
			{Pattern: "GET /console/submitters/{submitter}/protect", Handle: showIncident},
			{Pattern: "GET /console/submitters/{submitter}/protect/release", Handle: release, Acts: true},
			{Pattern: "POST /console/submitters/{submitter}/protect/release", Handle: release, Acts: true},
			{Pattern: "GET /console/submitters/{submitter}/foreign", Handle: listForeign},
			{Pattern: "GET /console/submitters/{submitter}/foreign/match", Handle: matchForeign, Acts: true},
			{Pattern: "POST /console/submitters/{submitter}/foreign/match", Handle: matchForeign, Acts: true},
			{Pattern: "GET /console/submitters/{submitter}/foreign/write-off", Handle: writeOff, Acts: true},
			{Pattern: "POST /console/submitters/{submitter}/foreign/write-off", Handle: writeOff, Acts: true},
			{Pattern: "GET /console/proposals", Handle: listProposals},
			{Pattern: "GET /console/proposals/{id}", Handle: showProposal},
			{Pattern: "GET /console/proposals/{id}/approve", Handle: approve, Acts: true},
			{Pattern: "POST /console/proposals/{id}/approve", Handle: approve, Acts: true},
			{Pattern: "GET /console/proposals/{id}/reject", Handle: reject, Acts: true},
			{Pattern: "POST /console/proposals/{id}/reject", Handle: reject, Acts: true},
		},
	}
}

// patience is how long a page waits for what needs the chain's nodes. The rest of the page is drawn without it.
const patience = 8 * time.Second
