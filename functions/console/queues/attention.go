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
