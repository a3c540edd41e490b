package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

func (a *app) proposalGroup() *cobra.Command {
	var all bool
	return group("proposal", "Approve acts that need two operators (operators)",
		a.list(operator, "list", "List the proposals that wait, or all", []option{flag(&all, "all", "also those that have ended")},
			func(q call) error {
				return printList(a, q.api.ListProposals(q.ctx, all), "PROPOSAL STATUS ACT BY EXPIRES REASON EFFECT", func(p client.Proposal) []any {
					return []any{p.ProposalID, p.Status, p.Act, p.ProposedBy, p.ExpiresAt, p.Reason, p.Effect}
				})
			}),
		show(a, operator, "get PROPOSAL", "Show a proposal: what it will do, and in which state it was made", (*client.Client).Proposal, a.printProposal),
		actOn(a, "approve PROPOSAL", "Approve another operator's act, which is carried out once", (*client.Client).Approve, a.printProposal),
		actOn(a, "reject PROPOSAL", "End a proposal that was not carried out", (*client.Client).Reject, a.printProposal))
}

func (a *app) printProposal(p client.Proposal, err error) error {
	pairs := []any{"proposal", p.ProposalID, "status", p.Status, "act", p.Act, "effect", p.Effect, "subject", p.Subject, "request", p.Method + " " + p.Path, "body", p.Body,
		"observed state", p.ObservedState, "proposed by", p.ProposedBy, "reason", p.Reason, "created", p.CreatedAt, "expires", p.ExpiresAt,
		"approved by", p.ApprovedBy, "why approved", p.ApproveReason, "ended by", p.ClosedBy, "why ended", p.CloseReason}
	if p.Outcome != nil {
		pairs = append(pairs, "the act's answer", fmt.Sprintf("%d %s", p.Outcome.Status, p.Outcome.Body))
	}
	return a.answer(err, pairs...)
}
