package incidents

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// proposalList is the page of the proposals.
type proposalList struct {
	All       bool // ended ones too
	Proposals []client.Proposal
	Next      string
}

// listProposals lists the proposals that wait for a second operator, or all, one page of 500. It makes 1 call.
func listProposals(ctx context.Context, call page.Call) (page.View, error) {
	p := &proposalList{All: call.FormValue("state") == "all"}
	one := client.Page{Token: call.FormValue("pageToken")}
	var err error
	p.Proposals, err = page.ReadRows(call.Admin.ListProposals(client.WithPage(ctx, &one), p.All))
	p.Next = one.Next
	return page.View{Title: "Proposals", Body: "incidents/proposals", Data: p}, err
}

// proposal is the page of one proposal, and the form of an act on it.
type proposal struct {
	client.Proposal
	Own     bool              // the person proposed it
	Subject map[string]string // what it is about: its texts by their names in the API
}

// Open reports whether the proposal can still be approved.
func (p proposal) Open() bool { return p.Status == "PROPOSED" || p.Status == "APPROVED" }

func proposalOf(call page.Call, p client.Proposal) *proposal {
	out := &proposal{Proposal: p, Own: isPerson(p.ProposedBy, call.Person)}
	_ = json.Unmarshal(p.Subject, &out.Subject) // the page shows ids, which are texts; a number is left out, as is a subject of another form
	return out
}

// isPerson reports whether an operator's name in the API is the person's e-mail. An operator whose name is a token's
// subject is not known here: the API refuses a second act of the same person.
func isPerson(name, email string) bool {
	return email != "" && strings.EqualFold(strings.TrimPrefix(name, "email:"), email)
}

// showProposal shows what a proposal would do, its evidence and how it ended. It makes 1 call.
func showProposal(ctx context.Context, call page.Call) (page.View, error) {
	p, err := call.Admin.Proposal(ctx, call.PathValue("id"))
	return page.View{Title: "Proposal", Body: "incidents/proposal", Data: proposalOf(call, p)}, err
}

// proposalActs are the acts on a proposal. Approve carries it out, and reject ends it.
var proposalActs = []page.Act{
	{Name: "approve", Title: "Approve a proposal", Danger: true, Do: page.ActOf((*client.Client).Approve)},
	{Name: "reject", Title: "Reject a proposal", Do: page.ActOf((*client.Client).Reject)},
}

// decide draws the form of an act on a proposal and carries it out. GET makes 1 call, POST 1, a refused POST 2.
func decide(act page.Act) page.Handler {
	return func(ctx context.Context, call page.Call) (page.View, error) {
		id := call.PathValue("id")
		form := func(ctx context.Context, problem error) (page.View, error) {
			p, err := call.Admin.Proposal(ctx, id)
			return page.View{Title: act.Title, Body: "incidents/" + act.Name, Data: proposalOf(call, p), WayOn: wayOn(problem)}, err
		}
		return page.ServeForm(ctx, call, page.Path("proposal", id), form, act.On(call, id, page.Confirmation(id)))
	}
}
