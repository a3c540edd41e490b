package money

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// transferPage is the page of one transfer.
type transferPage struct {
	client.Why
	Books   []book
	Path    []step
	Tx      *client.FoundTx // the managed transaction of a payout; nil: none, or it was not read
	TxError string          // why it was not read; "": it was
	Halts   int             // open halts of new transfers, which keep a transfer in INIT
	Acts    []page.Act
}

// book is a ledger's column: what the transfer has done there.
type book struct {
	Name    string // Funding, Trading core or Chain
	Account string // FUNDING, SPOT or CHAIN
	Lines   []line
	Holds   string // whether the money is here: yes, no, or perhaps
}

// line is one operation in a ledger.
type line struct {
	Op     string // withdraw, deposit or refund
	Sign   string // + or -
	Answer string // booked, refused, asked for: no answer yet, or not asked for yet
	At     *time.Time
}

// ledgers are the columns' names by account.
var ledgers = map[string]string{"FUNDING": "Funding", "SPOT": "Trading core", "CHAIN": "Chain"}

// The answers of a ledger to an operation.
const (
	booked  = "booked"
	refused = "refused for ever"
	asked   = "asked for, no answer yet"
	unasked = "not asked for yet"
)

// booksOf is what the transfer's states prove of each ledger. Funding is the first column.
func booksOf(w client.Why) []book {
	from, to := book{Name: ledgers[w.From], Account: w.From}, book{Name: ledgers[w.To], Account: w.To}
	from.Lines = []line{{Op: "withdraw", Sign: "−", Answer: answerTo(w, client.TransferSourcePending, client.TransferFailed, withdrawn...), At: since(w, withdrawn...)}}
	to.Lines = []line{{Op: "deposit", Sign: "+", Answer: answerTo(w, client.TransferTargetPending, client.TransferCompensating, client.TransferCommitted), At: since(w, client.TransferCommitted, client.TransferCompensating)}}
	if was(w, client.TransferCompensating) {
		from.Lines = append(from.Lines, line{Op: "refund", Sign: "+", Answer: answerTo(w, client.TransferCompensating, "", client.TransferRolledBack), At: since(w, client.TransferRolledBack)})
	}
	from.Holds, to.Holds = stages[w.State].source, stages[w.State].target
	if from.Account != "FUNDING" && to.Account == "FUNDING" {
		return []book{to, from}
	}
	return []book{from, to}
}

// withdrawn are the states in which the source has booked the withdrawal.
var withdrawn = []client.TransferState{client.TransferSourceDone, client.TransferTargetPending, client.TransferCommitted, client.TransferCompensating, client.TransferRolledBack}

// answerTo is a ledger's answer to the operation that is asked for in the state pending, is refused by the state no, and is
// booked in each state done.
func answerTo(w client.Why, pending, no client.TransferState, done ...client.TransferState) string {
	switch {
	case since(w, done...) != nil || slices.Contains(done, w.State):
		return booked
	case no != "" && was(w, pending) && was(w, no):
		return refused
	case was(w, pending):
		return asked
	}
	return unasked
}

// was reports whether the transfer is or was in the state.
func was(w client.Why, s client.TransferState) bool { return since(w, s) != nil || w.State == s }

// since is when the transfer came into the first of the states that it was in; nil: it was in none.
func since(w client.Why, states ...client.TransferState) *time.Time {
	for i, t := range w.History {
		if slices.Contains(states, t.State) {
			return &w.History[i].At
		}
	}
	return nil
}

// Where the money is, as far as a state proves it.
const (
	here    = "the money is here"
	gone    = "the money is not here"
	perhaps = "the money may be here"
)

// stage is what a state of a transfer means.
type stage struct {
	meaning        string
	source, target string // whether the ledger holds the money
	awaited        string // the operation whose answer the transfer waits for; "": it waits for none
}

var stages = map[client.TransferState]stage{
	client.TransferInit:          {"accepted, no ledger was called", here, gone, ""},
	client.TransferSourcePending: {"the withdrawal is asked for", perhaps, gone, "withdraw"},
	client.TransferSourceDone:    {"withdrawn, in flight", gone, gone, ""},
	client.TransferTargetPending: {"the deposit is asked for", gone, perhaps, "deposit"},
	client.TransferCommitted:     {"deposited: the end", gone, here, ""},
	client.TransferCompensating:  {"the target refused, the refund is asked for", perhaps, gone, "refund"},
	client.TransferRolledBack:    {"refunded: the end", here, gone, ""},
	client.TransferFailed:        {"the money never left: the end", here, gone, ""},
}

// step is a state on the transfer's way.
type step struct {
	State   client.TransferState
	Meaning string
	At      *time.Time // nil: it was not reached
	Now     bool
	Reason  string
}

// pathOf is the way taken, followed by the usual way on from the present state.
func pathOf(w client.Why) (path []step) {
	for i, t := range w.History {
		path = append(path, step{State: t.State, Meaning: stages[t.State].meaning, At: &w.History[i].At, Reason: t.Reason, Now: i == len(w.History)-1})
	}
	on := []client.TransferState{client.TransferInit, client.TransferSourcePending, client.TransferSourceDone, client.TransferTargetPending, client.TransferCommitted}
	if w.State == client.TransferCompensating {
		on = []client.TransferState{client.TransferCompensating, client.TransferRolledBack}
	}
	for _, s := range on[slices.Index(on, w.State)+1:] {
		if !w.State.Final() {
			path = append(path, step{State: s, Meaning: stages[s].meaning})
		}
	}
	return path
}

// showTransfer shows where a transfer's money is, its way and its evidence. It makes 2 calls: the transfer, and for a
// payout its transaction; for a transfer in INIT the halts.
func showTransfer(ctx context.Context, call page.Call) (page.View, error) {
	why, err := call.Admin.WhyTransfer(ctx, call.PathValue("id"))
	if err != nil {
		return page.View{}, err
	}
	p := &transferPage{Why: why, Books: booksOf(why), Path: pathOf(why), Acts: actsOn(why)}
	if why.State == client.TransferInit {
		if c, err := call.Admin.Conservation(ctx); err == nil { // the page is complete without it
			p.Halts = c.OpenHalts
		}
	} else if why.Payout != nil {
		p.Tx, p.TxError = payoutTx(ctx, call.Admin, why)
	}
	v := page.View{Title: "Transfer " + why.ReqID, Body: "money/transfer", Data: p}
	if !why.State.Final() {
		v.Poll = transferPoll
	}
	return v, nil
}

// transferPoll is how often an open transfer is read again.
const transferPoll = 5 * time.Second

// payoutTx is the managed transaction of a payout, which has the req_id as requestId.
func payoutTx(ctx context.Context, admin *client.Client, w client.Why) (*client.FoundTx, string) {
	var one client.Page
	rows, err := page.ReadRows(admin.FindTxs(client.WithPage(ctx, &one), client.TxFilter{Submitter: w.Payout.Submitter, RequestID: w.ReqID, PageSize: 1}))
	if err != nil || len(rows) == 0 {
		return nil, page.WhyUnread(err)
	}
	return &rows[0], ""
}

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
