package main

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/migrations"
)

// The commands that decide which intents may be without a MAC.
const (
	requireMACs   = "require-macs"
	allowUnmarked = "allow-unmarked"
)

func macs(ctx context.Context, c call, how []migrations.Option) error {
	rule, err := migrations.RequireMACs(ctx, c.databaseURL, c.command == requireMACs, c.by, c.reason, how...)
	switch {
	case err != nil:
		return err
	case !rule.Changed:
		fmt.Println("nothing was changed: that is the rule already")
	}
	if c.command == allowUnmarked {
		fmt.Printf("intents without a MAC get nonces; open intents without one: %d\nnext: migrate require-macs, once every function that accepts intents makes MACs.\n", rule.Unmarked)
		return nil
	}
	fmt.Printf("an intent needs a MAC; those up to seq %d may be without one, and %d of them are open\n", rule.Upto, rule.Unmarked)
	return nil
}
