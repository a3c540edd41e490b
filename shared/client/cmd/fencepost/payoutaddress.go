package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

func (a *app) payoutAddressGroup() *cobra.Command {
	var in client.NewPayoutAddress
	return group("payout-address", "Manage the addresses that a user's payouts may go to",
		a.list(user, "list", "List the user's addresses", nil, func(q call) error {
			all, err := q.api.ListPayoutAddresses(q.ctx)
			if err == nil && !all.Required {
				a.note(note{Text: "payouts go to other addresses too: transfer.payoutAddresses.required is false"})
			}
			return printList(a, each(all.Addresses, err), addressTitles, addressColumns)
		}),
		a.call(user, "add", "Add an address, which is usable after a delay", []option{
			required(&in.Asset, "asset", "an `asset` on whose chain the address is"),
			required(&in.Address, "address", "the `address`"),
		}, func(q call) error { return a.printAddress(q.api.AddPayoutAddress(q.ctx, in)) }),
		a.call(user, "remove ADDRESS_ID", "Take an address off the user's list at once", nil, func(q call) error {
			return a.printAddress(q.api.RemovePayoutAddress(q.ctx, q.ids[0]))
		}),
		a.list(operator, "show USER", "Show the addresses of a user, also removed ones (operators)", nil, func(q call) error {
			return a.printAddresses(q.api.ShowPayoutAddresses(q.ctx, q.ids[0]))
		}),
		a.act("drop USER ADDRESS_ID", "Take an address off a user's list at once (operators)", nil, func(q call) error {
			return a.printAddress(q.api.DropPayoutAddress(q.ctx, q.ids[0], q.ids[1], a.why))
		}),
		a.addressBlock("block", "Keep a user from adding addresses (operators)", (*client.Client).BlockPayoutAddresses),
		a.addressBlock("unblock", "Let a user add addresses again (operators)", (*client.Client).UnblockPayoutAddresses))
}

const addressTitles = "ADDRESS_ID CHAIN ADDRESS ADDED USABLE_FROM REMOVED BY REASON"

func addressColumns(p client.PayoutAddress) []any {
	return []any{p.AddressID, p.ChainID, p.Address, p.AddedAt, p.UsableFrom, p.RemovedAt, p.RemovedBy, p.RemoveReason}
}

func (a *app) printAddress(p client.PayoutAddress, err error) error {
	return a.answer(err, "address_id", p.AddressID, "chain", p.ChainID, "address", p.Address, "added", p.AddedAt, "usable from", p.UsableFrom,
		"removed", p.RemovedAt, "by", p.RemovedBy, "reason", p.RemoveReason)
}

// printAddresses prints a user's addresses, at most as many as the limit. They may be of several pages, so that with --json they
// are printed as they were decoded.
func (a *app) printAddresses(all client.UserAddresses, err error) error {
	if err != nil {
		return err
	}
	if a.json {
		if a.limit > 0 && len(all.Addresses) > a.limit {
			all.Addresses = all.Addresses[:a.limit]
			a.noteMore()
		}
		return printJSON(a.out, all)
	}
	pairs := []any{"only to these", all.Required}
	if b := all.Block; b != nil {
		pairs = append(pairs, "blocked since", b.At, "by", b.By, "why", b.Reason)
	}
	if err := a.answer(nil, pairs...); err != nil {
		return err
	}
	return printList(a, each(all.Addresses, nil), addressTitles, addressColumns)
}

func (a *app) addressBlock(verb, short string, act func(*client.Client, context.Context, int64, string) (client.UserAddresses, error)) *cobra.Command {
	return a.act(verb+" USER", short, nil, func(q call) error {
		all, err := act(q.api, q.ctx, q.ids[0], a.why)
		if err == nil && all.NextPageToken != "" {
			a.note(note{Text: fmt.Sprintf("the user has more addresses than these: fencepost payout-address show %d --limit 0 prints all", q.ids[0])})
		}
		a.limit = 0 // the whole page
		return a.printAddresses(all, err)
	})
}
