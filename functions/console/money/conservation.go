package money

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

const conservationPath = "/console/conservation"

// conservation is the page of the last check, its findings and the halts.
type conservation struct {
	None bool // the deployment has no transfers
	client.Conservation
}

// findingKinds are the findings in words, and what to do first.
var findingKinds = map[string]string{
	"BALANCE_DIFFERS":          "A balance is not the sum of its journal. Decide which of the two is right, then adjust the other.",
	"APPLIED_TWICE":            "A ledger has booked one operation twice.",
	"FIELDS_DIFFER":            "A journal's line has another user, asset or amount than the transfer.",
	"WRONG_SIDE":               "A ledger has booked an operation that belongs to the other one.",
	"NO_TRANSFER":              "A journal's line names a transfer that does not exist here. Was the database restored?",
	"CREDIT_WITHOUT_DEBIT":     "Money was deposited that was not withdrawn: it came from nothing.",
	"CREDIT_AND_REFUND":        "A transfer was both deposited and refunded: the money exists twice.",
	"COMMITTED_INCOMPLETE":     "A transfer is COMMITTED and a ledger has not booked its part.",
	"ROLLED_BACK_UNPAID":       "A transfer is ROLLED_BACK and its refund was not booked.",
	"CONTRADICTS_STATE":        "A journal says something else than the transfer's state.",
	"JOURNAL_WENT_BACK":        "A journal has fewer lines than before: a ledger was restored, or final blocks changed. A full check follows.",
	"FINAL_STATE_CHANGED":      "A transfer that had ended has another state now. The row was changed by other means than the API.",
	"PRECISION_DIFFERS":        "The two ledgers have different decimals for the asset.",
	"PAYMENT_WITHOUT_TRANSFER": "A payer's money left and no record explains it. If your people did not send it, the payer's key is stolen: change the signer, leave the halt in place.",
	"TRANSFER_WITHOUT_PAYMENT": "A payout is COMMITTED and the chain does not have its payment.",
	"PAYMENT_DIFFERS":          "A payment has another recipient, token or amount than its payout, or the payout was refunded.",
	"PAID_TWICE":               "A payout was paid a second time.",
}

// Meaning is a kind of finding in words.
func (conservation) Meaning(kind string) string { return findingKinds[kind] }

// What gives the reason in a halt's evidence; "": it has none.
func (conservation) What(h client.Halt) string {
	var e struct{ What string }
	_ = json.Unmarshal(h.Evidence, &e) // evidence of another form is shown as it is
	return e.What
}

// showConservation shows the last check, its findings and the open halts. It makes 1 call.
func showConservation(ctx context.Context, call page.Call) (page.View, error) {
	p := new(conservation)
	var err error
	if p.Conservation, err = call.Admin.Conservation(ctx); client.CodeOf(err) == "NOT_FOUND" {
		p.None, err = true, nil
	}
	return page.View{Title: "Conservation", Body: "money/conservation", Data: p}, err
}

// moneyForm is the form of an act on conservation.
type moneyForm struct {
	conservation
	ID      string
	Finding *client.Finding
	Halt    *client.Halt
	Earlier int // halts that are older than Halt, as far as they are shown
	Found   int // standing findings
	Report  *client.CheckReport
	Error   string // why the evidence was not read; "": it was
}

// evidence reads the last check and the halts for a form. It makes 1 call.
func evidence(ctx context.Context, call page.Call) *moneyForm {
	f := &moneyForm{ID: call.PathValue("id")}
	var err error
	f.Conservation, err = call.Admin.Conservation(ctx)
	f.Error = page.WhyUnread(err)
	if last := f.LastCheck; last != nil {
		f.Found = last.Standing
		if i := slices.IndexFunc(last.Found, func(one client.Finding) bool { return strconv.FormatInt(one.ID, 10) == f.ID }); i >= 0 {
			f.Finding = &last.Found[i]
		}
	}
	if i := slices.IndexFunc(f.Halts, func(one client.Halt) bool { return strconv.FormatInt(one.ID, 10) == f.ID }); i >= 0 {
		f.Halt, f.Earlier = &f.Halts[i], len(f.Halts)-i-1
	}
	return f
}

// actOnNumber draws the form of an act on the finding or the halt of the path's number, and carries the act out once the
// number was typed. GET makes 1 call, POST 1, a refused POST 2.
func actOnNumber(ctx context.Context, call page.Call, title, body string, do func(ctx context.Context, id int64, reason string) error) (page.View, error) {
	text := call.PathValue("id")
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return page.View{}, page.NotFound("The address has no number. Open the page Conservation.")
	}
	form := func(ctx context.Context, problem error) (page.View, error) {
		return page.View{Title: title, Body: body, Data: evidence(ctx, call), WayOn: ways.After(problem)}, nil
	}
	return page.ServeForm(ctx, call, conservationPath, form, func(ctx context.Context, reason string) error {
		if err := page.Confirmed(call, text); err != nil {
			return err
		}
		return do(ctx, id, reason)
	})
}

// adjust makes a balance and its journal equal.
func adjust(ctx context.Context, call page.Call) (page.View, error) {
	return actOnNumber(ctx, call, "Adjust finding "+call.PathValue("id"), "money/adjust", func(ctx context.Context, id int64, reason string) error {
		move := call.PostFormValue("move")
		if move != "journal" && move != "balance" {
			return page.Refuse("move", "Choose which of the two changes.")
		}
		_, err := call.Admin.AdjustFinding(ctx, id, move, reason)
		return err
	})
}

// resumeHalt ends a halt of new transfers.
func resumeHalt(ctx context.Context, call page.Call) (page.View, error) {
	return actOnNumber(ctx, call, "Resume transfers", "money/resume", func(ctx context.Context, id int64, reason string) error {
		return call.Admin.ResumeHalt(ctx, id, call.PostFormValue("earlier") == "true", reason)
	})
}

// check checks conservation now, as the schedule does each minute. No operator decides what it finds or halts, so it is
// no act: the form asks for no reason, and the page Audit does not have it. GET makes 1 call. POST makes
// 2: the check, and the last check for the form that shows the report.
func check(ctx context.Context, call page.Call) (page.View, error) {
	v := page.View{Title: "Check conservation", Body: "money/check"}
	var err error
	var report client.CheckReport
	if call.Method == http.MethodPost {
		report, err = call.Admin.CheckConservation(ctx, strings.TrimSpace(call.PostFormValue("full")) == "true")
		v.Problem, v.WayOn = err, ways.After(err)
	}
	ctx, cancel := page.Redraw(ctx, call)
	defer cancel()
	f := evidence(ctx, call)
	if call.Method == http.MethodPost && err == nil {
		f.Report = &report
	}
	v.Data = f
	return v, nil
}

// Scope says in words which transfers a halt covers.
func (conservation) Scope(h client.HaltScope) string {
	text := "all transfers"
	if h.AssetID != nil {
		text = "asset " + strconv.FormatInt(int64(*h.AssetID), 10)
	}
	if h.UserID != nil {
		text += " of user " + strconv.FormatInt(*h.UserID, 10)
	}
	return text
}
