package client

import (
	"context"
	"net/http"
	"net/url"
)

// Registration puts a signing account under management.
type Registration struct {
	Submitter   string   `json:"submitter"`
	Signer      string   `json:"signer,omitempty"`      // "local", "kms:<key version>" or "remote:<name>"; "": "local"
	Callers     []string `json:"callers"`               // who may post: e-mails or subjects, or "*"; "transfer", alone, for a payer
	StartNonce  uint64   `json:"startNonce,omitempty"`  // the chain's count of the account; 0: the deployment's usual
	Reason      string   `json:"reason,omitempty"`      // why StartNonce is not 0
	MaxInFlight int      `json:"maxInFlight,omitempty"` // 0: the deployment's usual
}

// Submitter is a signing account under management, as far as most callers want it.
type Submitter struct {
	Submitter     string   `json:"submitter"`
	Status        string   `json:"status"` // ACTIVE or SUSPENDED
	MaxInFlight   int      `json:"maxInFlight"`
	Callers       []string `json:"callers"`
	NextNonce     uint64   `json:"nextNonce"`     // the next to be given
	InFlightState string   `json:"inFlightState"` // IDLE, IN_FLIGHT or PROTECT
	Queued        int64    `json:"queued"`        // how many intents wait
}

// RegisterSubmitter registers the account; the same terms again are no error. It is
// for operators.
func (c *Client) RegisterSubmitter(ctx context.Context, in Registration) (out Submitter, err error) {
	err = c.call(ctx, request{method: http.MethodPost, path: "/admin/v1/submitters", body: in}, &out)
	return out, err
}

// ChangeSigner has another signer sign for the account, to which its key was moved. The
// reason is kept. It is for operators.
func (c *Client) ChangeSigner(ctx context.Context, submitter, signer, reason string) (out Submitter, err error) {
	body := map[string]string{"signer": signer, "reason": reason}
	err = c.call(ctx, request{method: http.MethodPost, path: "/admin/v1/submitters/" + url.PathEscape(submitter) + "/signer", body: body}, &out)
	return out, err
}

// Submitter is the account's state. It is for operators.
func (c *Client) Submitter(ctx context.Context, submitter string) (out Submitter, err error) {
	err = c.call(ctx, request{method: http.MethodGet, path: "/admin/v1/submitters/" + url.PathEscape(submitter)}, &out)
	return out, err
}

// CheckReport is what a check of conservation came to.
type CheckReport struct {
	Result  string `json:"result"`  // ok; standing: wrong, but nothing that was not known; violated
	Entries int64  `json:"entries"` // of the journals, read by it
	Final   int64  `json:"final"`   // transfers that became final, read by it
	Wrong   int64  `json:"wrong"`
}

// CheckConservation checks now that no money came from nothing or is gone; full: from
// the beginning of the journals. It is for operators.
func (c *Client) CheckConservation(ctx context.Context, full bool) (out CheckReport, err error) {
	body := map[string]bool{"full": full}
	err = c.call(ctx, request{method: http.MethodPost, path: "/admin/v1/conservation/check", body: body}, &out)
	return out, err
}
