package money

import (
	"context"
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

const transferRows = 100 // on a page

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
}

// listTransfers lists the transfers of all users by state, user, asset and age, the newest first. It makes 1 call.
func listTransfers(ctx context.Context, call page.Call) (page.View, error) {
	q := call.URL.Query()
	p := &transferList{States: states, Ages: ages, State: q.Get("state"), User: strings.TrimSpace(q.Get("user")), Asset: strings.TrimSpace(q.Get("asset")), Older: q.Get("older")}
	v := page.View{Title: "Transfers", Body: "money/transfers", Data: p}
	err := p.read(ctx, call.Admin, q.Get("pageToken"))
	switch client.CodeOf(err) {
	case "NOT_FOUND":
		p.None, err = true, nil
	case "INVALID_FIELD":
		p.Error, err = page.WhyUnread(err), nil
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
	if older, err := time.ParseDuration(p.Older); err == nil {
		query.Before = time.Now().Add(-older)
	}
	one := client.Page{Token: token}
	rows, err := page.ReadRows(admin.ListAllTransfers(client.WithPage(ctx, &one), query))
	p.Transfers, p.Next = rows, page.NextPath("/console/transfers", one.Next, map[string]string{"state": p.State, "user": p.User, "asset": p.Asset, "older": p.Older})
	return err
}
