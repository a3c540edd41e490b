// Command owner is a test program that reserves nonces and signs for them outside the manager:
//
//	owner allocate <submitter> <owner> <requestId>...
//	owner used <txId> <owner> <signed bytes in hex>
//	owner recyclable <txId> <owner> <reason>
//
// It reads the settings of the functions and prints its result as JSON. It exits with 1 if a hook
// failed; the same command may then be repeated.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/txmanager"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "owner:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	defer steps.Return(&err)
	if len(args) < 4 {
		return errors.New("want a hook, whom or what it is about, an owner, and what it takes")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c := steps.Value(config.Load(os.Environ()))
	app := steps.Value(functions.New(ctx, c, slog.New(slog.DiscardHandler), "owner", functions.Extensions{}))
	defer func() { err = errors.Join(err, app.Close(context.WithoutCancel(ctx))) }()
	switch hook, of, owner := args[0], args[1], args[2]; hook {
	case "allocate":
		return json.NewEncoder(os.Stdout).Encode(steps.Value(app.Allocate(ctx, txmanager.Submitter(of), owner, args[3:]...)))
	case "used":
		return app.MarkUsed(ctx, of, owner, steps.Value(hex.DecodeString(args[3])))
	case "recyclable":
		return app.MarkRecyclable(ctx, of, owner, args[3])
	default:
		return fmt.Errorf("there is no hook %q", hook)
	}
}
