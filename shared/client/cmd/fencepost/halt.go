package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

func (a *app) haltGroup() *cobra.Command {
	return group("halt", "Look after halts of new transfers, which the check of conservation opens (operators)", a.haltList(), a.haltCheck(), a.haltResume())
}

func (a *app) haltList() *cobra.Command {
	c := a.call(operator, "list", "List the open halts, the newest first", 0, func(ctx context.Context, api *client.Client, _ []string) error {
		all, err := api.Conservation(ctx)
		if err == nil && all.OpenHalts > len(all.Halts) {
			a.note(note{Text: fmt.Sprintf("%d halts are open; these are the newest", all.OpenHalts)})
		}
		return printList(a, each(all.Halts, err), "HALT SCOPE USER ASSET_ID SINCE EVIDENCE", func(h client.Halt) []any {
			var asset any
			if h.AssetID != nil {
				asset = *h.AssetID
			}
			return []any{h.ID, h.Scope, h.UserID, asset, h.Since, h.Evidence}
		})
	})
	a.listFlags(c)
	return c
}

func (a *app) haltCheck() *cobra.Command {
	var full bool
	c := a.call(operator, "check", "Check now that no money was created or lost; a violation halts new transfers (exit 1)", 0, func(ctx context.Context, api *client.Client, _ []string) error {
		r, err := api.CheckConservation(ctx, full)
		if err != nil {
			return err
		}
		if err := a.printAnswer("result", r.Result, "journal entries read", r.Entries, "transfers read", r.Final, "wrong", r.Wrong, "of them new", r.Fresh, "new halts", len(r.Halted)); err != nil {
			return err
		}
		if r.Result != "ok" {
			return endf(exitFailed, "%d findings, %d of them new: see docs/runbooks/conservation-violated.md", r.Wrong, r.Fresh)
		}
		return nil
	})
	c.Flags().BoolVar(&full, "full", false, "read the journals from their beginning, which can take minutes")
	return c
}

func (a *app) haltResume() *cobra.Command {
	var earlier bool
	var why *string
	c := a.command("resume HALT", "End a halt: its transfers are accepted again", 1, func(ctx context.Context, args []string) error {
		id, err := number("HALT", args[0])
		if err != nil {
			return err
		}
		api, err := a.client(operator)
		if err != nil {
			return err
		}
		if err := api.ResumeHalt(ctx, id, earlier, *why); err != nil {
			return err
		}
		return a.printAnswer("halt", id, "state", "ended")
	})
	c.Flags().BoolVar(&earlier, "earlier", false, "also all halts that were opened before it")
	why = reason(c)
	return c
}
