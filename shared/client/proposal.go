package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"
)

// Proposal is an act that one operator proposes and another must approve.
type Proposal struct {
	ProposalID        string          `json:"proposalId"`
	Status            string          `json:"status"` // PROPOSED, APPROVED, CARRIED_OUT, REJECTED, EXPIRED or STALE
	Kind              string          `json:"kind"`   // of the setting approvals.required
	Act               string          `json:"act"`
	Subject           json.RawMessage `json:"subject"` // what it is about
	Effect            string          `json:"effect"`  // what will happen
	Method            string          `json:"method"`
	Path              string          `json:"path"`
	Body              json.RawMessage `json:"body"`
	ObservedState     json.RawMessage `json:"observedState"` // the state that it was made in, and is carried out in
	ObservedStateHash string          `json:"observedStateHash"`
	ProposedBy        string          `json:"proposedBy"`
	Reason            string          `json:"reason"`
	CreatedAt         time.Time       `json:"createdAt"`
	ExpiresAt         time.Time       `json:"expiresAt"`
	ApprovedBy        string          `json:"approvedBy"` // "": not approved
	ApproveReason     string          `json:"approveReason"`
	ApprovedAt        *time.Time      `json:"approvedAt"`
	ClosedBy          string          `json:"closedBy"`    // who rejected it
	CloseReason       string          `json:"closeReason"` // why, or the state that was found in place of ObservedState
	ClosedAt          *time.Time      `json:"closedAt"`
	Outcome           *ActOutcome     `json:"outcome"` // nil: it is not carried out, or the answer was lost
}

// ActOutcome is the answer of a proposal's act.
type ActOutcome struct {
	Status int             `json:"status"` // of HTTP
	Body   json.RawMessage `json:"body"`   // what the call itself answers; null: nothing
}

// ProposedError is the error of a call that was not carried out: it needs a second operator,
// who approves the proposal by [Client.Approve].
type ProposedError struct {
	Proposal Proposal
}

// Error names the proposal, its effect and its time.
func (e *ProposedError) Error() string {
	return fmt.Sprintf("not carried out: proposal %s waits until %s for another operator to approve it: %s", e.Proposal.ProposalID, e.Proposal.ExpiresAt.Format(time.RFC3339), e.Proposal.Effect)
}

// ProposedBy is the proposal that the call created instead of acting; nil if err contains
// none.
func ProposedBy(err error) *Proposal {
	if e, ok := errors.AsType[*ProposedError](err); ok {
		return &e.Proposal
	}
	return nil
}

// isProposed is true if the answer is a proposal instead of the act's answer.
func isProposed(resp *http.Response) bool {
	return resp.StatusCode == http.StatusAccepted && strings.HasPrefix(resp.Header.Get("Location"), proposals+"/")
}

// ListProposals yields the open and approved proposals, or all, the newest first. It is for
// operators.
func (c *Client) ListProposals(ctx context.Context, all bool) iter.Seq2[Proposal, error] {
	state := ""
	if all {
		state = "all"
	}
	return pages[Proposal](ctx, c, proposals, "proposals", queryOf("pageSize", 500, "state", state))
}

// Proposal returns one proposal. It is for operators.
func (c *Client) Proposal(ctx context.Context, id string) (Proposal, error) {
	return get[Proposal](ctx, c, pathOf(proposals, id), nil)
}

// Approve approves another operator's proposal and carries out its act once. A repeated call
// returns the stored outcome. SAME_OPERATOR: you proposed it. PROPOSAL_STALE: the state that it
// depends on has changed. Other problems come from the act itself, and the proposal stays open. It
// is for operators.
func (c *Client) Approve(ctx context.Context, id, reason string) (Proposal, error) {
	return postOnce[Proposal](ctx, c, pathOf(proposals, id, "approve"), map[string]string{"reason": reason})
}

// Reject ends a proposal that was not carried out, also your own. TOO_LATE: it has ended already.
// It is for operators.
func (c *Client) Reject(ctx context.Context, id, reason string) (Proposal, error) {
	return postOnce[Proposal](ctx, c, pathOf(proposals, id, "reject"), map[string]string{"reason": reason})
}
