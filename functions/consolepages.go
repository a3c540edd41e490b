package functions

import (
	"fmt"
	"net/http"

	"github.com/fencepost/fencepost/functions/console"
	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/config"
)

// consoleSections returns the sections of the console, in the order of its menu.
func consoleSections(config.Console) []page.Section {
	return nil // queues.Section(), incidents.Section(), money.Section(), operation.Section(drillsOf(c))
}

// consolePages returns the renderer of the sections' pages, and the handler of the files that pages load.
func consolePages([]page.Section) (console.Renderer, http.Handler, error) {
	return plainPages{}, nil, nil
}

// plainPages draws pages as plain text.
type plainPages struct{}

func (plainPages) Render(w http.ResponseWriter, c page.Call, v page.View) {
	plainPages{}.RenderPlain(w, max(v.Status, http.StatusOK), v.Title, fmt.Sprint(c.Person, " ", v.Data))
}

func (plainPages) RenderError(w http.ResponseWriter, c page.Call, err error) {
	plainPages{}.RenderPlain(w, http.StatusBadGateway, "Error", err.Error())
}

func (plainPages) RenderPlain(w http.ResponseWriter, status int, title, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "%s\n%s\n", title, text)
}
