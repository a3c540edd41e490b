package queues

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// found is the page Search.
type found struct {
	Text       string
	Meant      string // what the text was taken for
	Txs        list[client.FoundTx]
	Submitters []client.Submitter
	Hits       []hit // other things with that id
	Note       string
	Lane       string // the nonce lane around a nonce that no transaction has; "": none
	Filter     filter
}

// hit is something with the id that was searched.
type hit struct {
	Kind string // as in [page.Path]
	ID   string
	Text string
}

const (
	maxSearch  = 300 // bytes: an account, a nonce, or a requestId of 128 bytes
	searchRows = 50  // transactions on a page
)

var (
	isUUID    = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	isHash    = regexp.MustCompile(`^0[xX][0-9a-fA-F]{64}$`)
	isAccount = regexp.MustCompile(`^(eip155:[0-9]{1,32}:)?0[xX][0-9a-fA-F]{40}$`)
	isNonce   = regexp.MustCompile(`^((?:eip155:[0-9]{1,32}:)?0[xX][0-9a-fA-F]{40})(?:\s*[#/,]\s*|\s+)(?:nonce\s+)?#?([0-9]{1,18})$`)
)

// meaning is what a text can be taken for.
type meaning struct {
	fits  func(text string) bool
	meant string
	none  string // the note if nothing is found
	find  func(f *found, ctx context.Context, call page.Call) error
}

// meanings are tried in their order. The last one fits each text.
var meanings = []meaning{
	{isHash.MatchString, "the hash of a transaction", "No signed version has this hash. A foreign transaction is shown at its submitter's PROTECT incident.", (*found).byHash},
	{isNonce.MatchString, "a nonce of an account", "No transaction of ours has this nonce.", (*found).byNonce},
	{isAccount.MatchString, "an account", "No submitter has this account. An account without a chain is looked for on the deployment's first chain.", (*found).byAccount},
	{isUUID.MatchString, "a txId, a proposal or a requestId", "Nothing has this id.", (*found).byUUID},
	{isListedState, "a state of transactions", "No transaction is in this state.", (*found).byState},
	{isULID, "a transfer's req_id or a requestId", "Nothing has this id.", (*found).byULID},
	{func(string) bool { return true }, "a requestId or a part of a submitter's name",
		"No request has exactly this id, and none of the first 499 submitters has it in its name.", (*found).byText},
}

// search finds what the text names, and goes straight to it if it is one thing. It makes up to 3 calls.
func search(ctx context.Context, call page.Call) (page.View, error) {
	query := call.URL.Query()
	f := found{Text: strings.TrimSpace(query.Get("q"))}
	if f.Text == "" {
		f.Filter = filterOf(query)
	}
	var err error
	switch text := f.Text; {
	case f.Filter.Given:
		err = f.byFilter(ctx, call, query.Get("pageToken"))
	case text == "":
		f.Note = "Enter a txId, a transaction's hash, an account, an account and a nonce, a requestId, a transfer's req_id, a part of a submitter's name, or STUCK, PROTECT or FAILED. Or list transactions by submitter, state, caller and time."
	case isNoText(text):
		f.Note = "No id has control characters or more than 300 bytes."
	default:
		m := meanings[slices.IndexFunc(meanings, func(m meaning) bool { return m.fits(text) })]
		f.Meant, f.Note = m.meant, m.none
		err = m.find(&f, ctx, call)
	}
	if err != nil {
		return page.View{}, err
	}
	if to := f.only(); to != "" && f.Text != "" {
		return page.View{SeeOther: to}, nil
	}
	return page.View{Title: "Search", Body: "queues/search", Data: f}, nil
}

// only is the page of the one thing that was found; "": none or several were.
func (f found) only() string {
	switch {
	case len(f.Txs.Rows)+len(f.Submitters)+len(f.Hits) != 1:
		return ""
	case len(f.Txs.Rows) == 1:
		return page.Path("tx", f.Txs.Rows[0].TxID)
	case len(f.Submitters) == 1:
		return page.Path("submitter", f.Submitters[0].Submitter)
	}
	return page.Path(f.Hits[0].Kind, f.Hits[0].ID)
}

// none is nil where the API knows no such thing, or takes no such text.
func none(err error) error {
	if s := page.StatusOf(err); s == http.StatusNotFound || s == http.StatusBadRequest {
		return nil
	}
	return err
}

// find adds the transactions that fit the filter.
func (f *found) find(ctx context.Context, call page.Call, filter client.TxFilter) (err error) {
	filter.PageSize = searchRows + 1
	f.Txs, err = first(call.Admin.FindTxs(ctx, filter), searchRows)
	return none(err)
}

func (f *found) byHash(ctx context.Context, call page.Call) error {
	return f.find(ctx, call, client.TxFilter{Hash: strings.ToLower(f.Text)})
}

func (f *found) byNonce(ctx context.Context, call page.Call) error {
	parts := isNonce.FindStringSubmatch(f.Text)
	nonce, err := strconv.ParseUint(parts[2], 10, 63)
	if err != nil {
		return err
	}
	f.Lane = lanePath(strings.ToLower(parts[1]), new(max(nonce, laneBefore)-laneBefore), false)
	return f.find(ctx, call, client.TxFilter{Submitter: parts[1], Nonce: &nonce})
}

func (f *found) byAccount(ctx context.Context, call page.Call) error {
	one, err := call.Admin.Submitter(ctx, f.Text)
	if err == nil {
		f.Submitters = []client.Submitter{one}
	}
	return none(err)
}

// listedStates are the states that the API lists over all submitters.
var listedStates = []string{"STUCK", "PROTECT", "FAILED"}

// isListedState reports whether the text is one of them, in any letter case.
func isListedState(text string) bool { return slices.Contains(listedStates, strings.ToUpper(text)) }

func (f *found) byState(ctx context.Context, call page.Call) error {
	f.Filter.State = client.TxState(strings.ToUpper(f.Text))
	return f.find(ctx, call, client.TxFilter{State: f.Filter.State})
}

// byUUID looks for a transaction, a proposal, and requests.
func (f *found) byUUID(ctx context.Context, call page.Call) error {
	var tx part[client.InspectedTx]
	var proposal part[client.Proposal]
	all := calls{ctx: ctx}
	ask(&all, &tx, func(ctx context.Context) (client.InspectedTx, error) { return call.Admin.InspectTx(ctx, f.Text) })
	ask(&all, &proposal, func(ctx context.Context) (client.Proposal, error) { return call.Admin.Proposal(ctx, f.Text) })
	all.Go(func() { all.err = f.find(ctx, call, client.TxFilter{RequestID: f.Text}) })
	all.Wait()
	if tx.Err == nil {
		f.Hits = append(f.Hits, hit{"tx", tx.Value.Transaction.TxID, "the transaction of the request " + tx.Value.Transaction.RequestID})
	}
	if proposal.Err == nil {
		f.Hits = append(f.Hits, hit{"proposal", proposal.Value.ProposalID, "the proposal: " + proposal.Value.Effect})
	}
	return cmp.Or(none(tx.Err), none(proposal.Err), all.err)
}

// byULID looks for a transfer and the requests with its id. A payout is both.
func (f *found) byULID(ctx context.Context, call page.Call) error {
	var transfer part[client.Why]
	all := calls{ctx: ctx}
	ask(&all, &transfer, func(ctx context.Context) (client.Why, error) {
		return call.Admin.WhyTransfer(ctx, strings.ToUpper(f.Text))
	})
	all.Go(func() { all.err = f.find(ctx, call, client.TxFilter{RequestID: f.Text}) })
	all.Wait()
	if transfer.Err == nil {
		f.Hits = append(f.Hits, hit{"transfer", transfer.Value.ReqID, "the transfer: " + transfer.Value.Where})
	}
	return cmp.Or(none(transfer.Err), all.err)
}

// byText looks for requests with exactly this id, and for submitters with the text in their names.
func (f *found) byText(ctx context.Context, call page.Call) error {
	var named part[list[client.Submitter]]
	all := calls{ctx: ctx}
	askRows(&all, &named, call.Admin.ListSubmitters(ctx, client.SubmitterQuery{}), maxRows)
	all.Go(func() { all.err = f.find(ctx, call, client.TxFilter{RequestID: f.Text}) })
	all.Wait()
	text := strings.ToLower(f.Text)
	for _, s := range named.Value.Rows {
		if strings.Contains(strings.ToLower(s.Name), text) || strings.Contains(s.Submitter, text) {
			f.Submitters = append(f.Submitters, s)
		}
	}
	return cmp.Or(named.Err, all.err)
}

// filter is a search for transactions by what they have in common.
type filter struct {
	client.TxFilter
	From    string // Since as the field for a time takes it; as it was entered if it is none
	NoTime  bool   // From is no time
	Given   bool   // the form was sent, perhaps with empty fields
	Problem string // what is wrong with a field; "": nothing
	Next    string // the path of the next page; "": this is the last
}

// States are the choices of the form.
func (filter) States() []client.TxState {
	return []client.TxState{client.Queued, client.InFlight, client.Submitted, client.Tracking, client.Stuck, client.Protect, client.Confirmed, client.Failed}
}

// filterOf reads the filter of an address.
func filterOf(q url.Values) filter {
	f := filter{From: strings.TrimSpace(q.Get("since"))}
	f.Submitter, f.State, f.Caller = strings.TrimSpace(q.Get("submitter")), client.TxState(q.Get("state")), strings.TrimSpace(q.Get("caller"))
	f.Given = q.Has("submitter") || q.Has("state") || q.Has("caller") || q.Has("since") || q.Has("pageToken")
	since, err := page.Since(f.From)
	switch {
	case err != nil:
		f.NoTime, f.Problem = true, page.WhyUnread(err)
	case !since.IsZero():
		f.Since, f.From = since.Truncate(time.Second), since.Format(page.TimeField)
	}
	if err == nil {
		f.Problem = f.refusal()
	}
	return f
}

// refusal returns why the API would refuse the submitter, the state or the caller; "": it would not. The API lists what an
// index finds: without a submitter no caller, and of the states only [listedStates].
func (f filter) refusal() string {
	switch {
	case isNoText(f.Submitter) || isNoText(f.Caller):
		return "No submitter and no caller has control characters or more than 300 bytes."
	case f.State != "" && !slices.Contains(f.States(), f.State):
		return "No transaction can have this state. Choose one of the list."
	case f.Submitter != "":
	case f.Caller != "":
		return "Give the submitter too: the transactions of a caller can be listed for one submitter only."
	case f.State != "" && !slices.Contains(listedStates, string(f.State)):
		return "Give the submitter too: over all submitters only STUCK, PROTECT and FAILED can be listed."
	}
	return ""
}

// isNoText reports whether no id or name can be the text.
func isNoText(text string) bool {
	return len(text) > maxSearch || strings.ContainsFunc(text, unicode.IsControl)
}

// byFilter reads one page of the transactions that fit the filter, the newest first. It makes 1 call, or none if a field
// is wrong.
func (f *found) byFilter(ctx context.Context, call page.Call, token string) error {
	f.Note = "No transaction fits."
	if f.Filter.Problem != "" {
		return nil
	}
	query, one := f.Filter.TxFilter, client.Page{Token: token}
	query.PageSize = searchRows
	var err error
	f.Txs.Rows, err = page.ReadRows(call.Admin.FindTxs(client.WithPage(ctx, &one), query))
	f.Filter.Next = page.NextPath("/console/search", one.Next,
		map[string]string{"submitter": f.Filter.Submitter, "state": string(f.Filter.State), "caller": f.Filter.Caller, "since": f.Filter.From})
	if s := page.StatusOf(err); s == http.StatusBadRequest || s == http.StatusNotFound {
		f.Filter.Problem, err = page.WhyUnread(err), nil
	}
	return err
}
