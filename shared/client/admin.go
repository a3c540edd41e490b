package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
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

// Submitter is a signing account under management.
type Submitter struct {
	Submitter      string           `json:"submitter"`
	Signer         string           `json:"signer"` // as in a [Registration]
	Status         string           `json:"status"` // ACTIVE, SUSPENDED or RETIRED
	Name           string           `json:"name"`   // for people; "": none
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

	Succeeded []Succession  `json:"succeeded"` // former callers that were succeeded
	Chain     *ChainAccount `json:"chain"`     // in the answer of [Client.Submitter]; else nil
}

// Succession is a former caller and its successor, who has the intents stored under the former
// name.
type Succession struct {
	Caller string `json:"caller"`
	By     string `json:"by"`
}

// ProtectIncident is an open PROTECT incident of a submitter.
type ProtectIncident struct {
	Incident int             `json:"incident"` // its number; [Release] names it
	Since    time.Time       `json:"since"`
	Evidence json.RawMessage `json:"evidence"` // what the nodes said
}

// RegisterSubmitter registers the account. A repeated call on the same terms is no error. A
// registration with neither a policy nor Unlimited is refused. It is for operators.
func (c *Client) RegisterSubmitter(ctx context.Context, in Registration) (Submitter, error) {
	body := struct {
		Registration
		Policy any `json:"policy"` // stands for the one of the registration; nil is refused
	}{Registration: in}
	switch {
	case in.Policy != nil:
		if err := in.Policy.check(); err != nil {
			return Submitter{}, err
		}
		body.Policy = in.Policy
	case in.Unlimited:
		body.Policy = "unlimited"
	}
	return postOnce[Submitter](ctx, c, submitters, body)
}

// SubmitterUpdate has the changes of [Client.UpdateSubmitter]. A nil member stays. The function decodes this type too.
type SubmitterUpdate struct {
	MaxInFlight *int    `json:"maxInFlight,omitempty"` // the window, from 1 to 10,000
	Name        *string `json:"name,omitempty"`        // for people, at most 100 characters; "": none
}

// UpdateSubmitter changes the submitter's window or name. After a narrower window open transactions continue.
// STRICT_WINDOW: nonce.strict.enabled allows no window above 1. PAYER_WINDOW: a payer's window cannot be wider
// than it has been. It is for operators.
func (c *Client) UpdateSubmitter(ctx context.Context, submitter string, u SubmitterUpdate, reason string) (Submitter, error) {
	body := struct {
		SubmitterUpdate
		Reason string `json:"reason"`
	}{u, reason}
	return call[Submitter](ctx, c, request{method: http.MethodPatch, path: pathOf(submitters, submitter), body: body})
}

// SubmitterChange is a recorded change of a submitter by an operator. Members that do not fit the action are
// empty.
type SubmitterChange struct {
	Action          string            `json:"action"` // SUSPEND, RESUME, POLICY, SIGNER, CALLERS, UPDATE, RETIRE, or APPROVED for another approved act
	At              time.Time         `json:"at"`
	By              string            `json:"by"`
	Reason          string            `json:"reason"`
	ProposalID      string            `json:"proposalId"` // "": one operator decided
	ApprovedBy      string            `json:"approvedBy"`
	Policy          *Policy           `json:"policy"`
	FromSigner      string            `json:"fromSigner"`
	ToSigner        string            `json:"toSigner"`
	FromCallers     []string          `json:"fromCallers"`
	ToCallers       []string          `json:"toCallers"`
	Succeeds        map[string]string `json:"succeeds"`
	FromMaxInFlight int               `json:"fromMaxInFlight"` // 0: the window did not change
	ToMaxInFlight   int               `json:"toMaxInFlight"`
	FromName        *string           `json:"fromName"` // nil: the name did not change
	ToName          *string           `json:"toName"`
}

// ListChanges yields the recorded changes of the submitter, the newest first. It fetches pageSize at once, up to
// 500; 0: 50. It is for operators.
func (c *Client) ListChanges(ctx context.Context, submitter string, pageSize int) iter.Seq2[SubmitterChange, error] {
	return pages[SubmitterChange](ctx, c, pathOf(submitters, submitter, "changes"), "changes", queryOf("pageSize", pageSize))
}

// PastIncident is a time in which a submitter was in PROTECT.
type PastIncident struct {
	Incident int             `json:"incident"`
	OpenedAt time.Time       `json:"openedAt"`
	Evidence json.RawMessage `json:"evidence"`
	ClosedAt *time.Time      `json:"closedAt"` // nil: it is open
	ClosedBy string          `json:"closedBy"`
	Mode     string          `json:"mode"` // of the release: resume or resync
	Reason   string          `json:"reason"`
	Released json.RawMessage `json:"released"` // the result of the release
}

// ListIncidents yields the submitter's PROTECT incidents, the newest first. It is for operators.
func (c *Client) ListIncidents(ctx context.Context, submitter string) iter.Seq2[PastIncident, error] {
	return pages[PastIncident](ctx, c, pathOf(submitters, submitter, "incidents"), "incidents", queryOf("pageSize", 100))
}

// SetCallers replaces the callers that may post for the submitter. succeeds maps a caller of the
// new list to the former caller that it succeeds. The successor gets the intents stored under the
// old name, so that a repeated request returns the stored intent. CALLERS_CONFLICT: the change does
// not fit the present or former callers. It is for operators.
func (c *Client) SetCallers(ctx context.Context, submitter string, callers []string, succeeds map[string]string, reason string) (Submitter, error) {
	body := struct {
		Callers  []string          `json:"callers"`
		Succeeds map[string]string `json:"succeeds,omitempty"`
		Reason   string            `json:"reason"`
	}{callers, succeeds, reason}
	return call[Submitter](ctx, c, request{method: http.MethodPut, path: pathOf(submitters, submitter, "callers"), body: body})
}

// SuspendSubmitter suspends the submitter: it accepts no more intents. TOO_LATE: it is suspended
// already. It is for operators.
func (c *Client) SuspendSubmitter(ctx context.Context, submitter, reason string) (Submitter, error) {
	return post[Submitter](ctx, c, pathOf(submitters, submitter, "suspend"), map[string]string{"reason": reason})
}

// ResumeSubmitter ends the suspension. TOO_LATE: it is not suspended. It is for operators.
func (c *Client) ResumeSubmitter(ctx context.Context, submitter, reason string) (Submitter, error) {
	return post[Submitter](ctx, c, pathOf(submitters, submitter, "resume"), map[string]string{"reason": reason})
}

// RetireSubmitter retires the submitter for ever. SUBMITTER_IN_USE: it has open work. It is for operators.
func (c *Client) RetireSubmitter(ctx context.Context, submitter, reason string) (Submitter, error) {
	return post[Submitter](ctx, c, pathOf(submitters, submitter, "retire"), map[string]string{"reason": reason})
}

// QueueCancelReport has the counts of one [Client.CancelQueue] and of what remains.
type QueueCancelReport struct {
	Submitter string `json:"submitter"`
	Cancelled int    `json:"cancelled"`
	Remaining int    `json:"remaining"` // of what was asked for; above 0: call again
	Bound     int    `json:"bound"`     // have a nonce, and are not touched
	Payouts   int    `json:"payouts"`   // in the queue; their transfers decide
	Beside    int    `json:"beside"`    // held for foreign transactions: see MatchForeign and WriteOffForeign
}

// CancelQueue cancels queued intents of the submitter that have no nonce, a limited number a call,
// the oldest first. With a caller it cancels only intents stored under that name. It is for
// operators.
func (c *Client) CancelQueue(ctx context.Context, submitter, caller, reason string) (QueueCancelReport, error) {
	body := map[string]string{"reason": reason}
	if caller != "" {
		body["caller"] = caller
	}
	return post[QueueCancelReport](ctx, c, pathOf(submitters, submitter, "queue", "cancel"), body)
}

// ChangeSigner changes the account's signer to the one that its key was moved to. It is for
// operators.
func (c *Client) ChangeSigner(ctx context.Context, submitter, signer, reason string) (Submitter, error) {
	return post[Submitter](ctx, c, pathOf(submitters, submitter, "signer"), map[string]string{"signer": signer, "reason": reason})
}

// Submitter is the account's state. It is for operators.
func (c *Client) Submitter(ctx context.Context, submitter string) (Submitter, error) {
	return get[Submitter](ctx, c, pathOf(submitters, submitter), nil)
}

// SubmitterQuery selects submitters.
type SubmitterQuery struct {
	State string // ACTIVE, SUSPENDED, RETIRED, or PROTECT: those with an open incident, whatever their status; "": any
	Sort  string // "name": by name, those without one last, and of any State; "": by submitter
}

// ListSubmitters yields submitters. It is for operators.
func (c *Client) ListSubmitters(ctx context.Context, q SubmitterQuery) iter.Seq2[Submitter, error] {
	return pages[Submitter](ctx, c, submitters, "submitters", queryOf("pageSize", 500, "state", q.State, "sort", q.Sort))
}

// Proceed lets one held intent proceed and returns its state. It is for operators.
func (c *Client) Proceed(ctx context.Context, txID, reason string) (TxState, error) {
	out, err := post[struct {
		State TxState `json:"state"`
	}](ctx, c, pathOf(adminTxs, txID, "proceed"), map[string]string{"reason": reason})
	return out.State, err
}

// ProceedReport has the counts of one [Client.ProceedAll] and of what remains.
type ProceedReport struct {
	Submitter string `json:"submitter"`
	Proceeded int    `json:"proceeded"`
	Remaining int    `json:"remaining"` // of those that were meant; above 0: call again
	Newer     int    `json:"newer"`     // held, and stored after through
	Cancelled int    `json:"cancelled"` // held, and their callers want them cancelled: decide about each by itself
	Payouts   int    `json:"payouts"`   // held; their transfers decide
	Beside    int    `json:"beside"`    // held for foreign transactions: see MatchForeign and WriteOffForeign
}

// ProceedAll lets held intents of the submitter proceed, a limited number a call. through is the
// txId of the newest intent that you have seen; later ones stay held. It is for operators.
func (c *Client) ProceedAll(ctx context.Context, submitter, through, reason string) (ProceedReport, error) {
	return post[ProceedReport](ctx, c, pathOf(submitters, submitter, "proceed"), map[string]string{"through": through, "reason": reason})
}

// UntouchedQuery asks for one page of [Client.ReleaseUntouched].
type UntouchedQuery struct {
	Reason    string `json:"reason"`              // kept with the operator's name
	PageSize  int    `json:"pageSize,omitempty"`  // of submitters, up to 1,000; 0: 100
	PageToken string `json:"pageToken,omitempty"` // NextPageToken of the last report; "": from the first on
}

// UntouchedReport has the counts of one [Client.ReleaseUntouched] and of what remains.
type UntouchedReport struct {
	Released      []string              `json:"released"`
	Left          []UnreleasedSubmitter `json:"left"`                    // looked at and not released
	Remaining     int                   `json:"remaining"`               // still in PROTECT because of the move
	NextPageToken string                `json:"nextPageToken,omitempty"` // where to go on; "": all were checked
}

// UnreleasedSubmitter is a submitter that [Client.ReleaseUntouched] has not released.
type UnreleasedSubmitter struct {
	Submitter string `json:"submitter"`
	Why       string `json:"why"`
}

// ReleaseUntouched releases submitters after a planned move of the database was confirmed. It
// releases only accounts whose transactions on the chain are all stored here. It is for
// operators.
func (c *Client) ReleaseUntouched(ctx context.Context, q UntouchedQuery) (UntouchedReport, error) {
	return post[UntouchedReport](ctx, c, "/admin/v1/database/release-untouched", q)
}

// CheckReport is the result of a check of conservation.
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

// CheckConservation checks now that no money was created or lost. With full it reads the
// journals from their beginning. It is for operators.
func (c *Client) CheckConservation(ctx context.Context, full bool) (CheckReport, error) {
	return post[CheckReport](ctx, c, "/admin/v1/conservation/check", map[string]bool{"full": full})
}

// PayoutStatement is an operator's statement on whether a payout was paid, where the stored
// state cannot tell.
type PayoutStatement struct {
	Paid          bool     `json:"paid"`
	TxHash        string   `json:"tx_hash,omitempty"`        // where paid: of the transaction that paid
	Then          string   `json:"then,omitempty"`           // where not paid: repost or refund
	MaxWindow     int      `json:"max_window,omitempty"`     // where not paid, after a restore: the largest maxInFlight that the payer can have had
	OtherPayments []string `json:"other_payments,omitempty"` // where not paid: transactions that do the same, and are others' payments
	Reason        string   `json:"reason"`
}

// StatePayout states whether the payout was paid. STATEMENT_STANDS: another statement is in
// force and must be withdrawn first. It is for operators.
func (c *Client) StatePayout(ctx context.Context, reqID string, s PayoutStatement) (Why, error) {
	return post[Why](ctx, c, pathOf(adminTransfers, reqID, "payout-statement"), s)
}

// WithdrawStatement withdraws the statement in force about the payout. NO_STATEMENT: there is
// none, or it has taken effect. It is for operators.
func (c *Client) WithdrawStatement(ctx context.Context, reqID, reason string) (Why, error) {
	return post[Why](ctx, c, pathOf(adminTransfers, reqID, "payout-statement", "withdraw"), map[string]string{"reason": reason})
}

// AcknowledgeTransfer silences MON-001 and MON-002 for the transfer until a time, at most 30 days
// ahead, while its state stays the same. TOO_LATE: its money is not in flight. It is for operators.
func (c *Client) AcknowledgeTransfer(ctx context.Context, reqID, reason string, until time.Time) error {
	body := map[string]string{"reason": reason, "until": until.UTC().Format(time.RFC3339)}
	return c.call(ctx, request{method: http.MethodPost, path: pathOf(adminTransfers, reqID, "acknowledge"), body: body}, nil)
}

// Adjustment is the correction that made a balance and the sum of its journal equal again.
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

// AdjustFinding ends a BALANCE_DIFFERS finding, once and by exactly its difference. move is
// "journal", which leaves the balance unchanged, or "balance", which leaves the journal's sum
// unchanged. ACCOUNT_MOVED: check conservation and adjust again. It is for operators.
func (c *Client) AdjustFinding(ctx context.Context, finding int64, move, reason string) (Adjustment, error) {
	return post[Adjustment](ctx, c, pathOf("/admin/v1/conservation/findings", finding, "adjust"), map[string]string{"move": move, "reason": reason})
}
