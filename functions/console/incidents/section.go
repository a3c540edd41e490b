// Package incidents has the console's pages about PROTECT incidents, foreign transactions and proposals.
package incidents

import (
	"embed"
	"slices"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
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
