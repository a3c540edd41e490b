package client

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// AssetTerms is what an operator sets of an asset. Amounts are decimal numbers of the asset.
type AssetTerms struct {
	AssetID              int32        `json:"assetId"`                        // its number in both ledgers; never changes
	Precision            int          `json:"precision"`                      // decimals of an amount; never changes
	MinTransfer          string       `json:"minTransfer"`                    // of one transfer
	MaxTransfer          string       `json:"maxTransfer"`                    // of one transfer
	DailyTransfer        string       `json:"dailyTransfer,omitempty"`        // of one user in 24 hours; "": no limit
	DailyPayout          string       `json:"dailyPayout,omitempty"`          // of one user in 24 hours; "": no limit
	DailyServiceDeposits string       `json:"dailyServiceDeposits,omitempty"` // of the deposit service in a day (UTC); "": nothing
	Status               string       `json:"status,omitempty"`               // ACTIVE or SUSPENDED; "": ACTIVE
	InternalTransfers    *bool        `json:"internalTransfers,omitempty"`    // nil: true
	Payout               *AssetPayout `json:"payout,omitempty"`               // nil: no payouts
}

// ParseAssetTerms reads the terms of an asset from JSON, as [ParsePolicy] reads a policy.
func ParseAssetTerms(text []byte) (AssetTerms, error) { return parseSent[AssetTerms](text) }

// AssetPayout is the account that pays an asset out, and the asset's form on the chain.
type AssetPayout struct {
	Payer    string `json:"payer"`             // a submitter whose callers are ["transfer"]
	ChainID  uint64 `json:"chainId,omitempty"` // the payer's; 0: omitted
	Token    string `json:"token,omitempty"`   // the contract; "": the chain's own coin
	Decimals int    `json:"decimals"`          // on the chain
}

// Asset is an asset as the service has it.
type Asset struct {
	Asset                string       `json:"asset"` // its name
	AssetID              int32        `json:"assetId"`
	Precision            int          `json:"precision"`
	MinTransfer          string       `json:"minTransfer"`
	MaxTransfer          string       `json:"maxTransfer"`
	DailyTransfer        string       `json:"dailyTransfer,omitempty"`        // "": no limit
	DailyPayout          string       `json:"dailyPayout,omitempty"`          // "": no limit
	DailyServiceDeposits string       `json:"dailyServiceDeposits,omitempty"` // "": nothing
	Status               string       `json:"status"`
	InternalTransfers    bool         `json:"internalTransfers"`
	Payout               *AssetPayout `json:"payout,omitempty"` // nil: no payouts
}

// AccountSide is a user's account in one ledger.
type AccountSide struct {
	State     string `json:"state"`               // OPEN, NONE, or UNKNOWN: the ledger has not answered
	Available string `json:"available,omitempty"` // "": it is not OPEN
	Status    string `json:"status,omitempty"`    // ACTIVE, FROZEN or DISABLED; "": it is not OPEN
}

// Account is a user's account in an asset, in both ledgers.
type Account struct {
	UserID  int64       `json:"userId"`
	Asset   string      `json:"asset"`
	AssetID int32       `json:"assetId"`
	Funding AccountSide `json:"funding"`
	Spot    AccountSide `json:"spot"`
}

// AccountDetail is an account with what operators ordered of it.
type AccountDetail struct {
	Account
	Wanted string       `json:"wanted"` // the status that was ordered last
	Agreed bool         `json:"agreed"` // both ledgers are known to have it
	Acts   []AccountAct `json:"acts"`   // the last 20, the newest first
}

// AccountAct is a deposit or withdrawal in one ledger, or a status in both. Members that do not fit the
// kind are empty.
type AccountAct struct {
	ActID      int64     `json:"actId"`
	Kind       string    `json:"kind"`  // DEPOSIT, WITHDRAWAL or STATUS
	State      string    `json:"state"` // DONE, REFUSED, or PENDING: the sweep repeats it
	ID         string    `json:"id,omitempty"`
	UserID     int64     `json:"userId"`
	Asset      string    `json:"asset"`
	Account    string    `json:"account,omitempty"` // FUNDING or SPOT
	Amount     string    `json:"amount,omitempty"`
	Status     string    `json:"status,omitempty"`
	Refusal    string    `json:"refusal,omitempty"`
	Funding    string    `json:"funding,omitempty"` // Funding's answer
	Trading    string    `json:"trading,omitempty"` // the trading core's answer
	WaitsFor   string    `json:"waitsFor,omitempty"`
	By         string    `json:"by"`
	Reason     string    `json:"reason"`
	ApprovedBy string    `json:"approvedBy,omitempty"`
	At         time.Time `json:"at"`
}

// Money is a deposit or withdrawal to book.
type Money struct {
	ID      string `json:"id"`                // the outside system's own key: a repeat books once
	Amount  string `json:"amount"`            // a decimal number, such as 12.5
	Account string `json:"account,omitempty"` // FUNDING or SPOT; "": FUNDING
	Line    uint64 `json:"line,omitempty"`    // of the core's journal, which has the id since before a restore; 0: the ledger books
	Outcome string `json:"outcome,omitempty"` // not_applied: ends a Spot act that the core has forgotten; "": the ledger books
	Reason  string `json:"reason"`
}

// PutAsset makes an asset known to both ledgers, or replaces its terms. ASSET_DIFFERS, ASSET_TERMS_FIXED
// and PAYER_IS_PAYING: a term cannot change, or not now. It is for operators.
func (c *Client) PutAsset(ctx context.Context, name string, terms AssetTerms, reason string) (Asset, error) {
	body := struct {
		AssetTerms
		Reason string `json:"reason"`
	}{terms, reason}
	return call[Asset](ctx, c, request{method: http.MethodPut, path: pathOf("/admin/v1/assets", name), body: body})
}

// ListAssets yields the assets by id; pageSize 0 is the service's default. It is for operators.
func (c *Client) ListAssets(ctx context.Context, pageSize int) iter.Seq2[Asset, error] {
	return pages[Asset](ctx, c, "/admin/v1/assets", "assets", queryOf("pageSize", pageSize))
}

// AccountQuery selects accounts to list.
type AccountQuery struct {
	Asset    string // "": all
	PageSize int    // how many are fetched at once; 0: the service's default
}

// ListOwnAccounts yields the accounts of the token's user, one for each asset.
func (c *Client) ListOwnAccounts(ctx context.Context, q AccountQuery) iter.Seq2[Account, error] {
	return pages[Account](ctx, c, "/api/v1/accounts", "accounts", queryOf("asset", q.Asset, "pageSize", q.PageSize))
}

// ListAccounts yields a user's accounts, one for each asset. It is for operators.
func (c *Client) ListAccounts(ctx context.Context, userID int64, q AccountQuery) iter.Seq2[Account, error] {
	query := queryOf("asset", q.Asset, "pageSize", q.PageSize)
	query.Set("user", strconv.FormatInt(userID, 10))
	return pages[Account](ctx, c, accounts, "accounts", query)
}

// ShowAccount returns a user's account in both ledgers, and the last acts on it. It is for operators.
func (c *Client) ShowAccount(ctx context.Context, userID int64, asset string) (AccountDetail, error) {
	return get[AccountDetail](ctx, c, pathOf(accounts, userID, asset), nil)
}

// BookDeposit books money from the outside, once for each ID. The act may be PENDING. If the ledger has
// refused it for ever, the error has a [Problem] of status 422 with the reason as its code. It is for
// operators and for the deposit service.
func (c *Client) BookDeposit(ctx context.Context, userID int64, asset string, in Money) (AccountAct, error) {
	return postOnce[AccountAct](ctx, c, pathOf(accounts, userID, asset, "deposits"), in)
}

// BookWithdrawal books money that has left to the outside. Its results are those of
// [Client.BookDeposit]. It is for operators.
func (c *Client) BookWithdrawal(ctx context.Context, userID int64, asset string, in Money) (AccountAct, error) {
	return postOnce[AccountAct](ctx, c, pathOf(accounts, userID, asset, "withdrawals"), in)
}

// SetAccountStatus sets a user's account to ACTIVE, FROZEN or DISABLED in both ledgers. While Agreed is
// false, the sweep repeats the call. It is for operators.
func (c *Client) SetAccountStatus(ctx context.Context, userID int64, asset, status, reason string) (AccountDetail, error) {
	return post[AccountDetail](ctx, c, pathOf(accounts, userID, asset, "status"), map[string]string{"status": status, "reason": reason})
}
