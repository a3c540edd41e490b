package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// NewPayoutAddress is an address to add for payouts to the token's user.
type NewPayoutAddress struct {
	Asset   string `json:"asset"` // one whose chain the address is on
	Address string `json:"address"`
}

// PayoutAddress is an address that is or was on a user's list.
type PayoutAddress struct {
	AddressID    int64      `json:"address_id"`
	ChainID      uint64     `json:"chain_id"`
	Address      string     `json:"address"`
	AddedAt      time.Time  `json:"added_at"`
	UsableFrom   time.Time  `json:"usable_from"`   // until then no payout goes to it, where the list is required
	RemovedAt    *time.Time `json:"removed_at"`    // nil: it is on the list
	RemovedBy    string     `json:"removed_by"`    // user, or an operator's name
	RemoveReason string     `json:"remove_reason"` // an operator's
}

// PayoutAddresses is the list of the token's user.
type PayoutAddresses struct {
	Required  bool            `json:"required"` // payouts go to these alone
	Addresses []PayoutAddress `json:"addresses"`
}

// UserAddresses are a user's addresses as operators see them, including removed ones.
type UserAddresses struct {
	Required  bool            `json:"required"`
	Addresses []PayoutAddress `json:"addresses"`
	Block     *AddressBlock   `json:"block"` // nil: the user can add addresses

	NextPageToken string `json:"nextPageToken"` // of BlockPayoutAddresses and UnblockPayoutAddresses, which return the first page
}

// AddressBlock is a block that keeps a user from adding addresses.
type AddressBlock struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// AddPayoutAddress puts an address on the list of the token's user. An address that is on it
// already stays as it is.
func (c *Client) AddPayoutAddress(ctx context.Context, in NewPayoutAddress) (PayoutAddress, error) {
	return post[PayoutAddress](ctx, c, payoutAddress, in)
}

// ListPayoutAddresses returns the addresses on the list of the token's user.
func (c *Client) ListPayoutAddresses(ctx context.Context) (PayoutAddresses, error) {
	return get[PayoutAddresses](ctx, c, payoutAddress, nil)
}

// RemovePayoutAddress takes an address off the list of the token's user at once.
func (c *Client) RemovePayoutAddress(ctx context.Context, addressID int64) (PayoutAddress, error) {
	return call[PayoutAddress](ctx, c, request{method: http.MethodDelete, path: pathOf(payoutAddress, addressID)})
}

// ShowPayoutAddresses returns all of a user's addresses, the newest first. It is for operators.
func (c *Client) ShowPayoutAddresses(ctx context.Context, userID int64) (all UserAddresses, err error) {
	for query := (url.Values{"pageSize": {"1000"}}); ; query.Set("pageToken", all.NextPageToken) {
		page, err := get[UserAddresses](ctx, c, pathOf(users, userID, "payout_addresses"), query)
		if err != nil {
			return UserAddresses{}, err
		}
		page.Addresses = append(all.Addresses, page.Addresses...)
		if all = page; all.NextPageToken == "" {
			return all, nil
		}
	}
}

// DropPayoutAddress takes an address off a user's list at once. It is for operators.
func (c *Client) DropPayoutAddress(ctx context.Context, userID, addressID int64, reason string) (PayoutAddress, error) {
	return post[PayoutAddress](ctx, c, pathOf(users, userID, "payout_addresses", addressID, "remove"), map[string]string{"reason": reason})
}

// BlockPayoutAddresses keeps a user from adding addresses. It is for operators.
func (c *Client) BlockPayoutAddresses(ctx context.Context, userID int64, reason string) (UserAddresses, error) {
	return post[UserAddresses](ctx, c, pathOf(users, userID, "payout_addresses", "block"), map[string]string{"reason": reason})
}

// UnblockPayoutAddresses lets a user add addresses again. It is for operators.
func (c *Client) UnblockPayoutAddresses(ctx context.Context, userID int64, reason string) (UserAddresses, error) {
	return post[UserAddresses](ctx, c, pathOf(users, userID, "payout_addresses", "unblock"), map[string]string{"reason": reason})
}
