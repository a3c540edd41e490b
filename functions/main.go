package functions

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"

	fnframework "github.com/GoogleCloudPlatform/functions-framework-go/functions"

	"github.com/fencepost/fencepost/shared/buildinfo"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/web"
)

// Main is a complete server program. It serves the function that FUNCTION_TARGET names, or all
// functions if it names none, until SIGTERM. It exits with 1 if it cannot start or serve.
func Main(ext Extensions) {
	if buildinfo.PrintVersion("server", os.Args[1:], os.Stdout) {
		return
	}
	if len(os.Args) > 1 {
		fmt.Print("server serves Fencepost's functions over HTTP on PORT. FUNCTION_TARGET names one of them;\n" +
			"not set, it serves all. Its only argument is --version; its settings are environment variables:\n\n" + config.Help())
		return
	}
	if err := run(context.Background(), ext); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

// gcPercent lets the heap of some ten megabytes grow fivefold between two collections, unless GOGC is
// set. With Go's default, collections took a tenth of the time of a create.
const gcPercent = 400

func run(ctx context.Context, ext Extensions) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	c, err := config.Load(os.Environ())
	if err != nil {
		return fmt.Errorf("settings:\n%w", err)
	}
	log := telemetry.NewLogger(os.Stdout, c.LogLevel, c.Tasks.Project)
	slog.SetDefault(log)
	node := telemetry.NodeID(ctx, c.Platform.Service != "")
	app, err := New(ctx, c, log, node, ext)
	if err != nil {
		return err
	}
	for name, handler := range app.Handlers() {
		fnframework.HTTP(name, handler.ServeHTTP)
	}
	target := cmp.Or(c.Platform.FunctionTarget, All)
	if err := os.Setenv("FUNCTION_TARGET", target); err != nil { // the functions framework reads it
		return err
	}
	build := buildinfo.Read()
	log.Info("serving", "function", target, "port", c.Platform.Port, telemetry.NodeIDKey, node,
		"version", build.Version, "revision", build.Revision, "modified", build.Modified, "go", build.Go)
	return web.Serve(ctx, web.ServeOptions{Port: strconv.Itoa(c.Platform.Port), Gate: app.Gate(), Hooks: []func(context.Context) error{app.Close}})
}
