package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/fencepost/fencepost/emulator/acceptance/payroll"
	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/load"
	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/crash"
)

// programAccounts is how many submitters the deployment's own program uses. They are the first
// ones: the foreign signer does not have their keys, and one has window 1.
const programAccounts = 2

// programSettings make a forgotten reservation expire soon.
var programSettings = map[string]string{
	"FENCEPOST_HOOKS_ENABLED": "true", "FENCEPOST_HOOKS_RESERVATION_TIMEOUT": "5s", "FENCEPOST_HANDLERS_TIMEOUT": "900ms", "FENCEPOST_HANDLERS_PATIENCE": "10s",
}

// openProgram starts the deployment's own Go program, in this process.
func (e *episode) openProgram(ctx context.Context) {
	c := steps.Value(config.LoadForTests(e.env.Environment()))
	app := steps.Value(functions.New(ctx, c, slog.New(slog.DiscardHandler), "program", functions.Extensions{Handlers: payroll.Handlers()}))
	e.stops = append(e.stops, func() error { return app.Close(context.WithoutCancel(ctx)) })
	e.program = &load.Program{
		App: app, Stack: e.env, Accounts: devchain.DevAccounts(programAccounts), Ledger: e.load.Ledger, Source: e.forkSource(), Note: e.folder.event,
		OnlyHandlers: e.flags.restores > 0,
	}
	const allow = `update submitter set callers = callers || '{handler:wage,hooks}' where submitter = any ($1)`
	steps.Value(e.db.Exec(ctx, allow, e.env.Submitters()[:programAccounts]))
}

// finality returns the finality settings: every third seed uses the chain's finalized tag.
func (e *episode) finality() map[string]string {
	if e.seed%3 != 1 {
		return nil
	}
	return map[string]string{"FENCEPOST_FINALITY_MODE": "finalized"}
}

// clockSpread is the error of the processes' wall clocks. Of each three process ids one is
// behind, one is right, and one is ahead. It is less than the hour by which the trading core
// lets a request be ahead of its clock.
const clockSpread = 45 * time.Minute

var clocks = map[string]string{crash.SpreadVariable: clockSpread.String()}

// buildPrograms builds the function server with the payroll's handlers, and the trading core,
// unless they were given.
func (e *episode) buildPrograms(ctx context.Context) {
	folder := e.folder.file("programs")
	steps.OK(os.Mkdir(folder, 0o700))
	if e.server == "" {
		e.server = steps.Value(stack.BuildProgram(ctx, folder, "emulator/acceptance/payroll/server"))
	}
	if e.core == "" {
		e.core = steps.Value(ubscore.Build(ctx, folder))
	}
}
