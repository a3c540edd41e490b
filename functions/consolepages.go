package functions

import (
	"net/http"

	"github.com/fencepost/fencepost/functions/console"
	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/functions/console/queues"
	"github.com/fencepost/fencepost/shared/config"
)

// consoleSections returns the sections of the console, in the order of its menu.
func consoleSections(config.Console) []page.Section {
	return []page.Section{queues.Section()} // incidents.Section(), money.Section(), operation.Section(drillsOf(c))
}

// consolePages returns the renderer of the sections' pages, and the handler of the files that pages load.
func consolePages(sections []page.Section) (console.Renderer, http.Handler, error) {
	pages, err := page.New(sections...)
	return pages, page.Static(), err
}
