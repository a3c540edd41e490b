package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

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
