// Package operation has the console's pages about webhook endpoints, chains and nodes, the audit and drills.
package operation

import (
	"embed"

	"github.com/fencepost/fencepost/functions/console/page"
)

//go:embed templates/*.html
var templates embed.FS

// Section returns the pages. Outside the local environment drills is nil, and there is no page Drill.
func Section(drills *Drills) page.Section {
	s := page.Section{
		Templates: templates,
		Menu: []page.Link{
			{Path: "/console/webhooks", Name: "Webhooks"}, {Path: "/console/chains", Name: "Chains"}, {Path: "/console/audit", Name: "Audit"},
		},
		Routes: append(page.Form("/console/webhooks/{endpoint}/{act}", actOnEndpoint),
			page.Route{Pattern: "GET /console/webhooks", Handle: listEndpoints},
			page.Route{Pattern: "GET /console/chains", Handle: listChains},
			page.Route{Pattern: "GET /console/audit", Handle: listActs},
			page.Route{Pattern: "GET /console/audit.csv", Handle: exportActs, Within: exportWithin},
		),
	}
	if drills == nil {
		return s
	}
	s.Menu = append(s.Menu, page.Link{Path: "/console/drill", Name: "Drill"})
	s.Routes = append(s.Routes,
		page.Route{Pattern: "GET /console/drill", Handle: drills.show},
		page.Route{Pattern: "POST /console/drill/{name}", Handle: drills.start, Acts: true},
		page.Route{Pattern: "POST /console/drill/stop", Handle: drills.stop, Acts: true},
	)
	return s
}
