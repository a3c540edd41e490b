package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Registration puts a signing account under management.
type Registration struct {
	Submitter   string   `json:"submitter"`
	Signer      string   `json:"signer,omitempty"`      // "local", "kms:<key version>" or "remote:<name>"; "": "local"
	Callers     []string `json:"callers"`               // who may post: "email:" or "sub:" and a name; "transfer", alone, for a payer
	StartNonce  uint64   `json:"startNonce,omitempty"`  // the chain's count of the account; 0: the deployment's usual
	Reason      string   `json:"reason,omitempty"`      // why StartNonce is not 0
	MaxInFlight int      `json:"maxInFlight,omitempty"` // 0: the deployment's usual
	Policy      *Policy  `json:"policy,omitempty"`      // required, unless Unlimited
	Unlimited   bool     `json:"-"`                     // without a Policy: the callers may ask for all that the account has
}

// Policy bounds what may be asked of a submitter. What is empty is no limit.
type Policy struct {
	MaxValue       string   `json:"maxValue,omitempty"`       // wei of one transaction
	MaxValuePerDay string   `json:"maxValuePerDay,omitempty"` // wei in any 24 hours
	MaxPerMinute   int      `json:"maxPerMinute,omitempty"`   // intents in any 60 seconds
	Targets        []string `json:"targets,omitempty"`        // addresses, functions as "0x…:transfer(address,uint256)", and "deploy" for contracts to deploy

	// A fee is what gas may cost at worst: the gas limit times maxFeePerGas.
	MaxFeePerTx          string `json:"maxFeePerTx,omitempty"`          // wei of one transaction
	MaxPriorityFeePerGas string `json:"maxPriorityFeePerGas,omitempty"` // wei per gas
	MaxGas               uint64 `json:"maxGas,omitempty"`               // gas limit of one transaction
	MaxFeesPerDay        string `json:"maxFeesPerDay,omitempty"`        // wei that is signed for in any 24 hours; "0": nothing is signed

	PerCaller map[string]CallerLimits `json:"perCaller,omitempty"` // by full names; "*": each caller that is not named
	Tokens    map[string]TokenLimits  `json:"tokens,omitempty"`    // by the addresses of the contracts
}

// CallerLimits bound what one caller may ask for, beside the submitter's own limits. What is
// empty is no limit.
type CallerLimits struct {
	MaxValue       string `json:"maxValue,omitempty"`       // wei of one transaction
	MaxValuePerDay string `json:"maxValuePerDay,omitempty"` // wei in any 24 hours
	MaxPerMinute   int    `json:"maxPerMinute,omitempty"`   // intents in any 60 seconds
	MaxQueued      int    `json:"maxQueued,omitempty"`      // intents that wait for a nonce at once
}

// TokenLimits bound what is transferred and approved of one token, in its smallest unit. Of its
// contract only transfer, approve and transferFrom are called, and what Targets names by its
// function. What is empty is no limit.
type TokenLimits struct {
	MaxAmount       string `json:"maxAmount,omitempty"`       // of one transaction
	MaxAmountPerDay string `json:"maxAmountPerDay,omitempty"` // in any 24 hours
}

// Submitter is a signing account under management.
type Submitter struct {
	Submitter      string           `json:"submitter"`
	Signer         string           `json:"signer"` // as in a [Registration]
	Status         string           `json:"status"` // ACTIVE or SUSPENDED
	StartNonce     uint64           `json:"startNonce"`
	StartReason    string           `json:"startReason"` // why StartNonce is not 0; "": none was given
	MaxInFlight    int              `json:"maxInFlight"`
	Callers        []string         `json:"callers"`
	CreatedAt      time.Time        `json:"createdAt"`
	CreatedBy      string           `json:"createdBy"`
	NextNonce      uint64           `json:"nextNonce"`      // the next to be given
	InFlightState  string           `json:"inFlightState"`  // IDLE, IN_FLIGHT or PROTECT
	InFlightNonce  *uint64          `json:"inFlightNonce"`  // the lowest that is open; nil: none
	InFlightTxID   string           `json:"inFlightTxId"`   // the transaction that has it; "": none
	Queued         int64            `json:"queued"`         // how many intents wait, with those that are held
	Held           int64            `json:"held"`           // how many get no nonce until their caller or an operator decides
	Forbidden      *int             `json:"forbidden"`      // of the first 500 that wait, how many policy and callers forbid by now; nil: it was not found out
	FencingToken   int64            `json:"fencingToken"`   // the last one given
	LeaseOwner     string           `json:"leaseOwner"`     // the invocation that holds the lease; "": none
	LeaseExpiresAt *time.Time       `json:"leaseExpiresAt"` // nil: no lease
	Protect        *ProtectIncident `json:"protect"`        // the open incident; nil: none
	Policy         *Policy          `json:"policy"`         // nil: no limits

	Succeeded []Succession `json:"succeeded"` // former callers that were succeeded
}

// Succession is a former caller, and who has what is stored under its name.
type Succession struct {
	Caller string `json:"caller"`
	By     string `json:"by"`
}

// ProtectIncident is an open PROTECT incident of a submitter.
type ProtectIncident struct {
	Episode  int             `json:"episode"` // its number; [Release] names it
	Since    time.Time       `json:"since"`
	Evidence json.RawMessage `json:"evidence"` // what the nodes said
}

// RegisterSubmitter registers the account; the same terms again are no error. A registration
// that has neither a policy nor Unlimited is refused. It is for operators.
func (c *Client) RegisterSubmitter(ctx context.Context, in Registration) (out Submitter, err error) {
	body := struct {
		Registration
		Policy any `json:"policy"` // stands for the one of the registration; nil is refused
	}{Registration: in}
	switch {
	case in.Policy != nil:
		body.Policy = in.Policy
	case in.Unlimited:
		body.Policy = "unlimited"
	}
	err = c.call(ctx, request{method: http.MethodPost, path: "/admin/v1/submitters", body: body}, &out)
	return out, err
}

// SetPolicy sets the submitter's policy in place of what it was; the reason is kept. It
// is for operators.
func (c *Client) SetPolicy(ctx context.Context, submitter string, p Policy, reason string) (out Submitter, err error) {
	body := struct {
		Policy
		Reason string `json:"reason"`
	}{p, reason}
	err = c.call(ctx, request{method: http.MethodPut, path: "/admin/v1/submitters/" + url.PathEscape(submitter) + "/policy", body: body}, &out)
	return out, err
}

// SetCallers sets who may post for the submitter, in place of who might. succeeds names, by
// a caller of the list, the one that it succeeds: it gets what is stored under the old
// name, so that what is posted again is answered as before. CALLERS_CONFLICT: the change
// does not fit who is, or was, a caller. The reason is kept. It is for operators.
func (c *Client) SetCallers(ctx context.Context, submitter string, callers []string, succeeds map[string]string, reason string) (out Submitter, err error) {
	body := struct {
		Callers  []string          `json:"callers"`
		Succeeds map[string]string `json:"succeeds,omitempty"`
		Reason   string            `json:"reason"`
	}{callers, succeeds, reason}
	err = c.call(ctx, request{method: http.MethodPut, path: "/admin/v1/submitters/" + url.PathEscape(submitter) + "/callers", body: body}, &out)
	return out, err
}

// SuspendSubmitter has the submitter take nothing more; TOO_LATE: it is suspended. The
// reason is kept. It is for operators.
func (c *Client) SuspendSubmitter(ctx context.Context, submitter, reason string) (Submitter, error) {
	return c.setStatus(ctx, submitter, "suspend", reason)
}

// ResumeSubmitter has it go on; TOO_LATE: it is not suspended. The reason is kept. It is
// for operators.
func (c *Client) ResumeSubmitter(ctx context.Context, submitter, reason string) (Submitter, error) {
	return c.setStatus(ctx, submitter, "resume", reason)
}

func (c *Client) setStatus(ctx context.Context, submitter, verb, reason string) (out Submitter, err error) {
	body := map[string]string{"reason": reason}
	err = c.call(ctx, request{method: http.MethodPost, path: "/admin/v1/submitters/" + url.PathEscape(submitter) + "/" + verb, body: body}, &out)
	return out, err
}

// QueueCancelReport is what a call of [Client.CancelQueue] did, and what is left.
type QueueCancelReport struct {
	Submitter string `json:"submitter"`
	Cancelled int    `json:"cancelled"`
	Remaining int    `json:"remaining"` // of what was asked for; above 0: call again
	Bound     int    `json:"bound"`     // have a nonce, and are not touched
	Payouts   int    `json:"payouts"`   // in the queue; their transfers decide
	Beside    int    `json:"beside"`    // held for foreign transactions: see MatchForeign and WriteOffForeign
}

// CancelQueue cancels what the submitter has in its queue without a nonce, some of it a call,
// the oldest first; with a caller only what is stored under that name. The reason is kept. It
// is for operators.
func (c *Client) CancelQueue(ctx context.Context, submitter, caller, reason string) (out QueueCancelReport, err error) {
	body := map[string]string{"reason": reason}
	if caller != "" {
		body["caller"] = caller
	}
	err = c.call(ctx, request{method: http.MethodPost, path: "/admin/v1/submitters/" + url.PathEscape(submitter) + "/queue/cancel", body: body}, &out)
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

// ListSubmitters yields all submitters by name, page by page as they are wanted. It ends
// at the first error. It is for operators.
func (c *Client) ListSubmitters(ctx context.Context) iter.Seq2[Submitter, error] {
	return pages("after", url.Values{}, func(values url.Values) ([]Submitter, string, error) {
		var page struct {
			Submitters []Submitter `json:"submitters"`
			NextAfter  string      `json:"nextAfter"`
		}
		err := c.call(ctx, request{method: http.MethodGet, path: "/admin/v1/submitters", query: values}, &page)
		return page.Submitters, page.NextAfter, err
	})
}

// Proceed lets one held intent go on, and returns its state. The reason is kept. It is
// for operators.
func (c *Client) Proceed(ctx context.Context, txID, reason string) (TxState, error) {
	var out struct {
		State TxState `json:"state"`
	}
	body := map[string]string{"reason": reason}
	err := c.call(ctx, request{method: http.MethodPost, path: "/admin/v1/tx/" + url.PathEscape(txID) + "/proceed", body: body}, &out)
	return out.State, err
}

// ProceedReport is what a call of [Client.ProceedAll] did, and what is left.
type ProceedReport struct {
	Submitter string `json:"submitter"`
	Proceeded int    `json:"proceeded"`
	Remaining int    `json:"remaining"` // of those that were meant; above 0: call again
	Newer     int    `json:"newer"`     // held, and stored after through
	Cancelled int    `json:"cancelled"` // held, and their callers want them cancelled: decide about each by itself
	Payouts   int    `json:"payouts"`   // held; their transfers decide
	Beside    int    `json:"beside"`    // held for foreign transactions: see MatchForeign and WriteOffForeign
}

// ProceedAll lets held intents of the submitter go on, some of them a call, and none that
// was stored after the one with the txId through: give the newest that you have seen. The
// reason is kept. It is for operators.
func (c *Client) ProceedAll(ctx context.Context, submitter, through, reason string) (out ProceedReport, err error) {
	body := map[string]string{"through": through, "reason": reason}
	err = c.call(ctx, request{method: http.MethodPost, path: "/admin/v1/submitters/" + url.PathEscape(submitter) + "/proceed", body: body}, &out)
	return out, err
}

// UntouchedQuery asks for one page of [Client.ReleaseUntouched].
type UntouchedQuery struct {
	Reason string `json:"reason"`          // kept with the operator's name
	Limit  int    `json:"limit,omitempty"` // of submitters; 0: 100
	After  string `json:"after,omitempty"` // of the last report; "": from the first on
}

// UntouchedReport is what a call of [Client.ReleaseUntouched] did, and what is left.
type UntouchedReport struct {
	Released []string `json:"released"`
	Left     []struct {
		Submitter string `json:"submitter"`
		Why       string `json:"why"`
	} `json:"left"` // looked at and not released
	Remaining int     `json:"remaining"` // still in PROTECT because of the move
	After     *string `json:"after"`     // where to go on; nil: all were looked at
}

// ReleaseUntouched releases, after a planned move of the database that was confirmed,
// submitters whose accounts have sent nothing that is not known here. It is for operators.
func (c *Client) ReleaseUntouched(ctx context.Context, q UntouchedQuery) (out UntouchedReport, err error) {
	err = c.call(ctx, request{method: http.MethodPost, path: "/admin/v1/authority/release-untouched", body: q}, &out)
	return out, err
}

// CheckReport is what a check of conservation came to.
type CheckReport struct {
	Result  string      `json:"result"`  // ok; standing: wrong, but nothing that was not known; violated
	Full    bool        `json:"full"`    // from the beginning of the journals
	Entries int64       `json:"entries"` // of the journals, read by it
	Final   int64       `json:"final"`   // transfers that became final, read by it
	Wrong   int64       `json:"wrong"`
	Found   []Finding   `json:"found"`  // the first 100
	Fresh   int64       `json:"fresh"`  // how many of them no check had found before
	Halted  []HaltScope `json:"halted"` // what it has halted
}

// CheckConservation checks now that no money came from nothing or is gone; full: from
// the beginning of the journals. It is for operators.
func (c *Client) CheckConservation(ctx context.Context, full bool) (out CheckReport, err error) {
	body := map[string]bool{"full": full}
	err = c.call(ctx, request{method: http.MethodPost, path: "/admin/v1/conservation/check", body: body}, &out)
	return out, err
}

// PayoutStatement is what an operator states of a payout of which the record cannot tell
// whether it was paid.
type PayoutStatement struct {
	Paid      bool     `json:"paid"`
	TxHash    string   `json:"tx_hash,omitempty"`    // where paid: of the transaction that paid
	Then      string   `json:"then,omitempty"`       // where not paid: repost or refund
	MaxWindow int      `json:"max_window,omitempty"` // where not paid, after a restore: the largest maxInFlight that the payer can have had
	NotBy     []string `json:"not_by,omitempty"`     // where not paid: transactions that do the same, and are others' payments
	Reason    string   `json:"reason"`
}

// StatePayout states whether the payout was paid; STATEMENT_STANDS: another statement has
// to be withdrawn first. It is for operators.
func (c *Client) StatePayout(ctx context.Context, reqID string, s PayoutStatement) (out Why, err error) {
	err = c.call(ctx, request{method: http.MethodPost, path: "/admin/v1/transfers/" + url.PathEscape(reqID) + "/payout-statement", body: s}, &out)
	return out, err
}

// WithdrawStatement takes the standing statement about the payout back; NO_STATEMENT:
// there is none, or it has taken effect. It is for operators.
func (c *Client) WithdrawStatement(ctx context.Context, reqID, reason string) (out Why, err error) {
	body := map[string]string{"reason": reason}
	err = c.call(ctx, request{method: http.MethodPost, path: "/admin/v1/transfers/" + url.PathEscape(reqID) + "/payout-statement/withdraw", body: body}, &out)
	return out, err
}

// AcknowledgeTransfer silences MON-001 and MON-002 for the transfer until a time, at
// most 30 days ahead, while it stays in its state; TOO_LATE: its money is not in flight.
// The reason is kept. It is for operators.
func (c *Client) AcknowledgeTransfer(ctx context.Context, reqID, reason string, until time.Time) error {
	body := map[string]string{"reason": reason, "until": until.UTC().Format(time.RFC3339)}
	return c.call(ctx, request{method: http.MethodPost, path: "/admin/v1/transfers/" + url.PathEscape(reqID) + "/acknowledge", body: body}, nil)
}

// Adjustment is what made a balance and the sum of its journal equal again.
type Adjustment struct {
	FindingID int64     `json:"finding_id"`
	Side      string    `json:"side"` // FUNDING or SPOT
	Op        string    `json:"op"`   // of the journal's line: journal_credit, journal_debit, balance_credit or balance_debit
	UserID    int64     `json:"user_id"`
	AssetID   int32     `json:"asset_id"`
	Units     string    `json:"units"`
	By        string    `json:"by"`
	At        time.Time `json:"at"`
}

// AdjustFinding ends a finding BALANCE_DIFFERS, once and by exactly its difference. move
// is "journal", which leaves the balance, or "balance", which leaves the journal's sum;
// ACCOUNT_MOVED: check conservation, and adjust again. The reason is kept. It is for
// operators.
func (c *Client) AdjustFinding(ctx context.Context, finding int64, move, reason string) (out Adjustment, err error) {
	body := map[string]string{"move": move, "reason": reason}
	err = c.call(ctx, request{method: http.MethodPost, path: "/admin/v1/conservation/findings/" + strconv.FormatInt(finding, 10) + "/adjust", body: body}, &out)
	return out, err
}
