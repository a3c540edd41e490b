package queues

import (
	"cmp"
	"context"
	"net/url"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// attention is the page Attention.
type attention struct {
	Overdue []need
	Waits   []need // below the limits of their causes
	First   bool   // it is the first page
	Next    string // the token of the next page; "": this is the last
}

// need is an item with the pages about it.
type need struct {
	client.AttentionItem
	About string // the page with its evidence
	Act   string // the form that decides about it; "": About leads on

	Anchor string // the kind, at its first item; the overview leads there
}

// showAttention draws the page Attention. It makes 1 call.
func showAttention(ctx context.Context, call page.Call) (page.View, error) {
	after := call.URL.Query().Get("after")
	items, next, err := pageOf(ctx, after, call.Admin.ListAttention)
	if err != nil {
		return page.View{}, err
	}
	a, seen := attention{First: after == "", Next: next}, make(map[string]bool)
	for _, item := range items {
		n := needOf(item)
		if !seen[item.Kind] {
			n.Anchor, seen[item.Kind] = item.Kind, true
		}
		if item.Overdue {
			a.Overdue = append(a.Overdue, n)
		} else {
			a.Waits = append(a.Waits, n)
		}
	}
	return page.View{Title: "Attention", Body: "queues/attention", Data: a, Poll: poll}, nil
}

// needOf finds the pages about an item.
func needOf(item client.AttentionItem) need {
	n, s := need{AttentionItem: item}, item.Subject
	switch item.Kind {
	case "PROTECT":
		n.About = page.Path("submitter", s.Submitter) + "/protect"
	case "FOREIGN":
		n.About = page.Path("submitter", s.Submitter) + "/foreign"
	case "STUCK":
		n.About, n.Act = page.Path("tx", s.TxID), page.Path("tx", s.TxID)+"/decide"
	case "HALT", "FINDING":
		n.About = "/console/conservation"
	case "ACCOUNT":
		n.About = "/console/transfers"
	case "ENDPOINT", "PAUSED":
		n.About = "/console/webhooks#" + url.PathEscape(s.Endpoint)
	case "PROPOSAL":
		n.About = page.Path("proposal", s.ProposalID)
	case "DATABASE", "MOVE":
		n.About = "/console/submitters"
	default:
		n.About = aboutSubject(s)
	}
	return n
}

// aboutSubject is the page about the subject's transfer, transaction or submitter.
func aboutSubject(s client.AttentionSubject) string {
	switch {
	case s.ReqID != "":
		return page.Path("transfer", s.ReqID)
	case s.TxID != "":
		return page.Path("tx", s.TxID)
	case s.Submitter != "":
		return page.Path("submitter", s.Submitter)
	}
	return "/console/"
}

// AboutText is the text of the link to the item's page.
func (n need) AboutText() string {
	switch n.Kind {
	case "PROTECT":
		return "See the evidence and the way out"
	case "PROPOSAL":
		return "Approve or reject"
	}
	return "Look at it"
}

// Todo is what an operator can do about the item.
func (n need) Todo() string { return todo(cmp.Or(n.Cause, n.Kind), n.Action) }

// Tone is the class of the item's box.
func (n need) Tone() string {
	if !n.Overdue {
		return ""
	}
	return toneOf(n.Kind)
}

// todos has what an operator can do, by the cause of a wait or the kind of an item. It names forms of this console, or a
// command where there is no form. It has an entry where the API's own text names routes and members.
var todos = map[string]string{
	"DATABASE":     "Find out which database this is, and follow the runbook in its order. The command that accepts it is fencepost protect accept-database.",
	"ACCOUNT":      "Run fencepost --json account get with its user and asset, and read in waitsFor what the act waits for. It is repeated without you; a repeat under another id could book twice.",
	"PROTECT":      "Read the evidence, then release the submitter as the runbook says.",
	"OPERATOR":     "Read the versions and the history, then decide.",
	"STUCK":        "Read the versions and the history, then decide.",
	"SUSPENDED":    "Find out why it is suspended, then resume the submitter.",
	"HELD":         "Read what it is held for, then let it go on or cancel it.",
	"INCLUSION":    "Wait, or decide to replace it with higher fees.",
	"PREDECESSOR":  "Look at the transaction that blocks it.",
	"GAS_ESTIMATE": "Read the node's words. Cancel the intent, or post it again with gas.",
	"HALT":         "Find the cause, then resume the transfers.",
	"FINDING":      "Find the cause by the evidence of the finding.",
	"PAYOUT":       "Find out whether it was paid, then state it as the runbook says.",
	"TRANSFER":     "Read on its page what it waits for.",
	"REFUND":       "Read on its page what it waits for.",
	"FOREIGN":      "Match each with its intent, or write it off, as the runbook says.",
	"PAUSED":       "Once the cause is over, resume the deliveries.",
	"PROPOSAL":     "Read it, then approve or reject it.",
}

// todo is what an operator can do about the cause or kind: this console's text, or else that of the API.
func todo(about, api string) string {
	return cmp.Or(todos[about], api)
}
