package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

func (a *app) haltGroup() *cobra.Command {
	var earlier bool
	return group("halt", "Look after halts of new transfers, which the check of conservation opens (operators)",
		a.list(operator, "list", "List the open halts, the newest first", nil, func(q call) error {
			all, err := q.api.Conservation(q.ctx)
			if err == nil && all.OpenHalts > len(all.Halts) {
				a.note(note{Text: fmt.Sprintf("%d halts are open; these are the newest", all.OpenHalts)})
			}
			return printList(a, each(all.Halts, err), "HALT SCOPE USER ASSET_ID SINCE EVIDENCE",
				func(h client.Halt) []any { return []any{h.ID, h.Scope, h.UserID, h.AssetID, h.Since, h.Evidence} })
		}),
		a.haltCheck(),
		a.act("resume HALT", "End a halt: its transfers are accepted again", []option{
			flag(&earlier, "earlier", "also all halts that were opened before it"),
		}, func(q call) error {
			return a.answer(q.api.ResumeHalt(q.ctx, q.ids[0], earlier, a.why), "halt", q.ids[0], "state", "ended")
		}))
}

// fullWithin is how long halt check --full waits for its answer unless --within says otherwise.
const fullWithin = 10 * time.Minute

func (a *app) haltCheck() *cobra.Command {
	var full bool
	c := a.command("check", "Check now that no money was created or lost; a violation halts new transfers (exit 1)", []option{
		flag(&full, "full", "read the journals from their beginning; large deployments run the job conservation-full"),
	}, func(q call) error {
		if full && !a.hasFlag("within") {
			a.within = fullWithin
		}
		a.attempt = a.within // a check is not repeated
		api, err := a.client(operator)
		if err != nil {
			return err
		}
		r, err := api.CheckConservation(q.ctx, full)
		err = a.answer(err, "result", r.Result, "journal entries read", r.Entries, "transfers read", r.Final, "wrong", r.Wrong, "of them new", r.Fresh, "new halts", len(r.Halted))
		return cmp.Or(err, endIf(r.Result != "ok", exitFailed,
			"%d findings, %d of them new: see docs/runbooks/conservation-violated.md", r.Wrong, r.Fresh))
	})
	c.Long = c.Short + `.

It waits for the answer for --within: by default a minute, and with --full ten minutes. Where deployed by Terraform, a
transaction of admin ends after 10 s. If a check takes longer, run the scheduled job conservation-full, which has half an hour.`
	return c
}
