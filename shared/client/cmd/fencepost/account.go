package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

func (a *app) accountGroup() *cobra.Command {
	return group("account", "Show users' accounts, and book money from and to the outside", a.accountList(),
		a.call(operator, "get USER ASSET", "Show an account in both ledgers, and the last acts on it (operators)", nil,
			func(q call) error { return a.printAccount(q.api.ShowAccount(q.ctx, q.ids[0], q.args[1])) }),
		a.accountBook("deposit", "Book money from the outside, once for each id (operators, the deposit service)", (*client.Client).BookDeposit),
		a.accountBook("withdraw", "Book money that has left to the outside, once for each id (operators)", (*client.Client).BookWithdrawal),
		a.act("set-status USER ASSET STATUS", "Set an account in both ledgers to ACTIVE, FROZEN or DISABLED (operators)",
			[]option{lastArgument("ACTIVE", "FROZEN", "DISABLED")}, a.setAccountStatus))
}

// number returns a number of a user, an address or a halt; all are above 0.
func number(what, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, usagef("%s %.40q: want a whole number above 0", what, text)
	}
	return n, nil
}

func (a *app) accountList() *cobra.Command {
	var query client.AccountQuery
	var of string
	return a.command("list", "List the balances of the token's user, or with --user of another one (operators)", []option{
		flag(&of, "user", "the `number` of the user, with an operator's token"),
		flag(&query.Asset, "asset", "only in this `asset`"),
		a.limited(),
	}, func(q call) (err error) {
		as, id := user, int64(0)
		if of != "" {
			if id, err = number("--user", of); err != nil {
				return err
			}
			as = operator
		}
		api, err := a.client(as)
		if err != nil {
			return err
		}
		rows := api.ListOwnAccounts(q.ctx, query)
		if as == operator {
			rows = api.ListAccounts(q.ctx, id, query)
		}
		return printList(a, rows, "USER ASSET FUNDING SPOT FUNDING_STATUS SPOT_STATUS", func(t client.Account) []any {
			return []any{t.UserID, t.Asset, balance(t.Funding), balance(t.Spot), t.Funding.Status, t.Spot.Status}
		})
	})
}

// balance is the available amount on one side, or the reason why it is unknown.
func balance(s client.AccountSide) string {
	if s.State == "OPEN" {
		return s.Available
	}
	return s.State
}

func (a *app) printAccount(t client.AccountDetail, err error) error {
	pairs := []any{"user", t.UserID, "asset", t.Asset, "Funding", balance(t.Funding), "Funding's status", t.Funding.Status, "Spot", balance(t.Spot), "Spot's status", t.Spot.Status,
		"wanted status", t.Wanted, "both have it", t.Agreed}
	for _, act := range t.Acts {
		pairs = append(pairs, fmt.Sprintf("act %d", act.ActID), strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s %s by %s: %s", cell(act.At), act.Kind, act.State, act.Account, act.Amount+act.Status, act.By, act.Reason)), " "))
	}
	return a.answer(err, pairs...)
}

func (a *app) accountBook(verb, short string, book func(*client.Client, context.Context, int64, string, client.Money) (client.AccountAct, error)) *cobra.Command {
	var in client.Money
	return a.act(verb+" USER ASSET", short, []option{
		required(&in.ID, "id", "the outside system's own `key`: a repeat books once"),
		required(&in.Amount, "amount", "a decimal `number`, such as 12.5"),
		flag(&in.Account, "account", "the `account`: FUNDING or SPOT; default: FUNDING", "FUNDING", "SPOT"),
		flag(&in.Line, "line", "after a restore: the `line` of the trading core's journal that has the id"),
		flag(&in.Outcome, "outcome", "not_applied: ends an act on SPOT that the trading core has forgotten", "not_applied"),
	}, func(q call) error {
		in.Reason, a.keyed = a.why, true
		act, err := book(q.api, q.ctx, q.ids[0], q.args[1], in)
		err = a.answer(err, "act", act.ActID, "kind", act.Kind, "state", act.State, "id", act.ID, "user", act.UserID, "asset", act.Asset, "account", act.Account, "amount", act.Amount,
			"waits for", act.WaitsFor, "by", act.By, "at", act.At)
		return cmp.Or(err, endIf(act.State == "PENDING", exitUnknown,
			"act %d is PENDING, and the sweep repeats it: run the same command again to see its end", act.ActID))
	})
}

func (a *app) setAccountStatus(q call) error {
	t, err := q.api.SetAccountStatus(q.ctx, q.ids[0], q.args[1], q.args[2], a.why)
	return cmp.Or(a.printAccount(t, err), endIf(!t.Agreed, exitUnknown,
		"not both ledgers are known to have %s, and the sweep repeats it: see fencepost account get %d %s", t.Wanted, t.UserID, t.Asset))
}

func (a *app) assetGroup() *cobra.Command {
	return group("asset", "List and set the assets that users have accounts in (operators)",
		a.list(operator, "list", "List the assets with their terms", nil, func(q call) error {
			return printList(a, q.api.ListAssets(q.ctx, 0), "ASSET ID STATUS PRECISION MIN MAX DAILY INTERNAL PAYER TOKEN", func(t client.Asset) []any {
				p := cmp.Or(t.Payout, &client.AssetPayout{})
				return []any{t.Asset, t.AssetID, t.Status, t.Precision, t.MinTransfer, t.MaxTransfer, t.DailyTransfer, t.InternalTransfers, p.Payer, p.Token}
			})
		}),
		a.assetPut())
}

func (a *app) assetPut() *cobra.Command {
	var path string
	c := a.act("put ASSET", "Make an asset known, or replace its terms", []option{
		required(&path, "terms", "all its terms, a JSON `file` as docs/transfers.md has it; - is stdin"),
	}, func(q call) error {
		terms, err := parseFile(a, path, client.ParseAssetTerms)
		if err != nil {
			return err
		}
		t, err := q.api.PutAsset(q.ctx, q.args[0], terms, a.why)
		pairs := []any{"asset", t.Asset, "id", t.AssetID, "status", t.Status, "precision", t.Precision, "smallest transfer", t.MinTransfer, "largest transfer", t.MaxTransfer,
			"transfers in 24 h", t.DailyTransfer, "payouts in 24 h", t.DailyPayout, "deposits of the service in a day", t.DailyServiceDeposits,
			"transfers between accounts", t.InternalTransfers}
		if p := t.Payout; p != nil {
			pairs = append(pairs, "payer", p.Payer, "chain", p.ChainID, "token", p.Token, "decimals on the chain", p.Decimals)
		}
		return a.answer(err, pairs...)
	})
	c.Example = `  echo '{"assetId": 7, "precision": 6, "minTransfer": "0.01", "maxTransfer": "1000"}' | fencepost asset put USDT --terms - --reason 'a new asset'`
	return c
}
