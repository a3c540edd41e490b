package incidents

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// foreignPage lists a submitter's foreign transactions whose requests are not known.
type foreignPage struct {
	Submitter string
	Foreign   []client.OpenForeign
	Next      string
}

// listForeign lists the foreign transactions to decide about, one page of 500. It makes 1 call.
func listForeign(ctx context.Context, call page.Call) (page.View, error) {
	p := &foreignPage{Submitter: call.PathValue("submitter")}
	one := client.Page{Token: call.FormValue("pageToken")}
	var err error
	p.Foreign, err = rowsOf(call.Admin.ListForeign(client.WithPage(ctx, &one), p.Submitter))
	p.Next = one.Next
	return page.View{Title: "Foreign transactions", Body: "incidents/foreign", Data: p}, err
}

// foreignForm is the form of a decision about foreign transactions.
type foreignForm struct {
	Submitter string
	Nonce     string
	TxID      string
	Through   bool // all foreign transactions up to the nonce are written off
	One       *client.OpenForeign
	Beyond    bool   // the transaction may be on a later page
	Error     string // why the transaction was not read; "": it was
	WayOn     string
}

// foreignFormOf reads the evidence. It makes 1 call.
func foreignFormOf(ctx context.Context, call page.Call, problem error) *foreignForm {
	ctx, cancel := page.Redraw(ctx, call)
	defer cancel()
	f := &foreignForm{Submitter: call.PathValue("submitter"), Nonce: call.FormValue("nonce"), TxID: call.FormValue("txId"), Through: call.FormValue("through") == "true", WayOn: wayOn(problem)}
	var one client.Page
	all, err := rowsOf(call.Admin.ListForeign(client.WithPage(ctx, &one), f.Submitter))
	f.Error = textOf(err)
	for i := range all {
		if strconv.FormatUint(all[i].Nonce, 10) == f.Nonce {
			f.One = &all[i]
		}
	}
	f.Beyond = err == nil && f.One == nil && one.Next != ""
	if f.TxID == "" && f.One != nil {
		f.TxID = f.One.TxID
	}
	return f
}

// nonceOf is the nonce of the form.
func nonceOf(call page.Call) (uint64, error) {
	n, err := strconv.ParseUint(call.PostFormValue("nonce"), 10, 64)
	if err != nil {
		return 0, page.Refuse("nonce", "Give the nonce of a foreign transaction, a whole number.")
	}
	return n, nil
}

// matchForeign records which held intent a foreign transaction was. GET and POST make 1 call each, and a refused POST 2.
func matchForeign(ctx context.Context, call page.Call) (page.View, error) {
	id := call.PathValue("submitter")
	form := func(problem error) page.View {
		return page.View{Title: "Match a foreign transaction", Body: "incidents/match", Data: foreignFormOf(ctx, call, problem)}
	}
	return page.Act(call, form, func(ctx context.Context, reason string) (string, error) {
		nonce, err := nonceOf(call)
		if err != nil {
			return "", err
		}
		txID := strings.TrimSpace(call.PostFormValue("txId"))
		if txID == "" {
			return "", page.Refuse("txId", "Give the txId of the held intent that the transaction was.")
		}
		if err := page.Confirmed(call, strconv.FormatUint(nonce, 10)); err != nil {
			return "", err
		}
		_, err = call.Admin.MatchForeign(ctx, id, nonce, txID, reason)
		return foreignPath(id), err
	})
}

// writeOffCalls bounds the calls of one write-off. Each writes off up to 100 foreign transactions.
const writeOffCalls = 10

// errPart reports an act of several calls that ended at one of them, after others were carried out.
var errPart = errors.New("a part was carried out")

// writeOff records that foreign transactions were no request of this deployment. GET makes 1 call. POST makes 1 for one
// transaction, up to 10 for all up to a nonce, and 1 more if it is refused.
func writeOff(ctx context.Context, call page.Call) (page.View, error) {
	id := call.PathValue("submitter")
	form := func(problem error) page.View {
		return page.View{Title: "Write off foreign transactions", Body: "incidents/write-off", Data: foreignFormOf(ctx, call, problem)}
	}
	return page.Act(call, form, func(ctx context.Context, reason string) (string, error) {
		nonce, err := nonceOf(call)
		if err != nil {
			return "", err
		}
		if err := page.Confirmed(call, strconv.FormatUint(nonce, 10)); err != nil {
			return "", err
		}
		if call.PostFormValue("through") != "true" {
			_, err = call.Admin.WriteOffForeign(ctx, id, &nonce, nil, reason)
			return foreignPath(id), err
		}
		for i := range writeOffCalls {
			done, err := call.Admin.WriteOffForeign(ctx, id, nil, &nonce, reason)
			if err != nil && i > 0 {
				return "", fmt.Errorf("%w: %w", errPart, err)
			}
			if err != nil {
				return "", err
			}
			if done.WrittenOff == 0 {
				return foreignPath(id), nil
			}
		}
		return "", page.Refuse("nonce", fmt.Sprintf("%d calls have written off up to 100 transactions each, and more are left. Send the form again.", writeOffCalls))
	})
}

func foreignPath(submitter string) string { return page.Path("submitter", submitter) + "/foreign" }
