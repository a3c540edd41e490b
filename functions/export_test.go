package functions

import "github.com/fencepost/fencepost/shared/web"

// Patterns are all that the functions serve.
func (a *App) Patterns() []string {
	all := web.NewMux()
	all.HandleHealth(a.store.Ping)
	for _, route := range a.routes() {
		route(all)
	}
	return all.Patterns()
}
