package functions

import (
	"net/http"

	"github.com/fencepost/fencepost/functions/console"
	"github.com/fencepost/fencepost/functions/console/incidents"
	"github.com/fencepost/fencepost/functions/console/money"
	"github.com/fencepost/fencepost/functions/console/operation"
	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/functions/console/queues"
	"github.com/fencepost/fencepost/shared/config"
)

// consoleSections returns the sections of the console, in the order of its menu.
func consoleSections(c config.Console) []page.Section {
	return []page.Section{queues.Section(queues.Links{Trace: c.TraceURL, Log: c.LogURL}), incidents.Section(), money.Section(), operation.Section(drillsOf(c))}
}

// drillsOf returns the drills of the local environment, whose issuer leads to the emulator's control address; nil: there
// are none.
func drillsOf(c config.Console) operation.Drills {
	if c.Mode != config.ConsoleLocal {
		return nil
	}
	return operation.RemoteDrills(c.OIDCIssuer + "/control")
}

// consolePages returns the renderer of the sections' pages, and the handler of the files that pages load.
func consolePages(sections []page.Section) (console.Renderer, http.Handler, error) {
	pages, err := page.New(sections...)
	return pages, page.Static(), err
}
