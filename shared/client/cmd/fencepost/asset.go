package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

func (a *app) assetGroup() *cobra.Command {
	return group("asset", "List and set the assets that users have accounts in (operators)", a.assetList(), a.assetPut())
}

const assetTitles = "ASSET ID STATUS PRECISION MIN MAX DAILY INTERNAL PAYER TOKEN"

func assetColumns(t client.Asset) []any {
	p := t.Payout
	if p == nil {
		p = new(client.AssetPayout)
	}
	return []any{t.Asset, t.AssetID, t.Status, t.Precision, t.MinTransfer, t.MaxTransfer, t.DailyTransfer, t.InternalTransfers, p.Payer, p.Token}
}

func (a *app) assetList() *cobra.Command {
	return a.list(operator, "list", "List the assets with their terms", 0, func(ctx context.Context, api *client.Client, _ []string) error {
		return printList(a, api.ListAssets(ctx, 0), assetTitles, assetColumns)
	})
}

func (a *app) assetPut() *cobra.Command {
	var path string
	c := a.onRecord("put ASSET", "Make an asset known, or replace its terms", 1, func(ctx context.Context, api *client.Client, args []string) error {
		terms, err := a.readTerms(path)
		if err != nil {
			return err
		}
		t, err := api.PutAsset(ctx, args[0], terms, a.why)
		pairs := []any{"asset", t.Asset, "id", t.AssetID, "status", t.Status, "precision", t.Precision, "smallest transfer", t.MinTransfer, "largest transfer", t.MaxTransfer,
			"transfers in 24 h", t.DailyTransfer, "payouts in 24 h", t.DailyPayout, "deposits of the service in a day", t.DailyServiceDeposits,
			"transfers between accounts", t.InternalTransfers}
		if p := t.Payout; p != nil {
			pairs = append(pairs, "payer", p.Payer, "chain", p.ChainID, "token", p.Token, "decimals on the chain", p.Decimals)
		}
		return a.answer(err, pairs...)
	})
	c.Example = `  echo '{"assetId": 7, "precision": 6, "minTransfer": "0.01", "maxTransfer": "1000"}' | fencepost asset put USDT --terms - --reason 'a new asset'`
	c.Flags().StringVar(&path, "terms", "", "all its terms, a JSON `file` as docs/transfers.md has it; - is stdin")
	require(c, "terms")
	return c
}

// readTerms reads the terms of an asset. A member that they do not have, or that is empty, is refused: it would limit nothing.
func (a *app) readTerms(path string) (terms client.AssetTerms, err error) {
	text, err := readFile(path, a.in)
	if err != nil {
		return terms, err
	}
	if terms, err = client.ParseAssetTerms(text); err != nil {
		return terms, usagef("%s: %v", path, err)
	}
	return terms, nil
}
