package money

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// states are the states of a transfer, in the order of its lifecycle.
var states = []client.TransferState{
	client.TransferInit, client.TransferSourcePending, client.TransferSourceDone, client.TransferTargetPending, client.TransferCommitted,
	client.TransferCompensating, client.TransferRolledBack, client.TransferFailed,
}

// ages are the choices of the filter by age.
var ages = []age{{"", "any age"}, {"1m", "more than a minute old"}, {"1h", "more than an hour old"}, {"24h", "more than a day old"}}

type age struct{ Value, Name string }

const (
	transferRows  = 100  // on a page
	filteredRows  = 1000 // of one call, where the age leaves some out
	filteredCalls = 5
)

// transferList is the page of the transfers.
type transferList struct {
	None      bool // the deployment has no transfers
	States    []client.TransferState
	Ages      []age
	State     string
	User      string
	Asset     string
	Older     string
	Error     string // a filter is wrong
	Transfers []client.OperatorsTransfer
	Next      string // the path of the next page; "": this is the last
	Cut       bool   // the calls of the page were used up before it was full
}

// listTransfers lists the transfers of all users by state, user, asset and age, the newest first. It makes 1 call, and
// with an age up to 5.
func listTransfers(ctx context.Context, call page.Call) (page.View, error) {
	q := call.URL.Query()
	p := &transferList{States: states, Ages: ages, State: q.Get("state"), User: strings.TrimSpace(q.Get("user")), Asset: strings.TrimSpace(q.Get("asset")), Older: q.Get("older")}
	v := page.View{Title: "Transfers", Body: "money/transfers", Data: p}
	err := p.read(ctx, call.Admin, q.Get("pageToken"))
	switch client.CodeOf(err) {
	case "NOT_FOUND":
		p.None, err = true, nil
	case "INVALID_FIELD":
		p.Error, err = textOf(err), nil
	}
	return v, err
}

func (p *transferList) read(ctx context.Context, admin *client.Client, token string) error {
	query := client.AllTransfersQuery{State: client.TransferState(p.State), Asset: p.Asset, PageSize: transferRows}
	if p.User != "" {
		id, err := strconv.ParseInt(p.User, 10, 64)
		if err != nil || id < 1 {
			p.Error = "The user is a whole number above 0."
			return nil
		}
		query.UserID = id
	}
	older, _ := time.ParseDuration(p.Older)
	if older <= 0 {
		one := client.Page{Token: token}
		rows, err := rowsOf(admin.ListAllTransfers(client.WithPage(ctx, &one), query))
		p.Transfers, p.Next = rows, p.nextPath(one.Next)
		return err
	}
	query.PageSize = filteredRows
	before := time.Now().Add(-older)
	for range filteredCalls {
		one := client.Page{Token: token}
		rows, err := rowsOf(admin.ListAllTransfers(client.WithPage(ctx, &one), query))
		if err != nil {
			return err
		}
		for _, t := range rows {
			if t.CreatedAt.Before(before) {
				p.Transfers = append(p.Transfers, t)
			}
		}
		token, p.Next = one.Next, p.nextPath(one.Next)
		if token == "" || len(p.Transfers) > 0 {
			return nil
		}
	}
	p.Cut = true
	return nil
}

// nextPath is the path of the page that the token begins; "" for none.
func (p *transferList) nextPath(token string) string {
	if token == "" {
		return ""
	}
	values := url.Values{"pageToken": {token}}
	for name, text := range map[string]string{"state": p.State, "user": p.User, "asset": p.Asset, "older": p.Older} {
		if text != "" {
			values.Set(name, text)
		}
	}
	return "/console/transfers?" + values.Encode()
}
