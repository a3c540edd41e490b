package incidents

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// foreignPage lists a submitter's foreign transactions whose requests are not known.
type foreignPage struct {
	Submitter string
	From      string // the lowest nonce that is listed; "": all are
	Foreign   []client.OpenForeign
	Next      string
}

// listForeign lists the foreign transactions to decide about, one page of 500. It makes 1 call.
func listForeign(ctx context.Context, call page.Call) (page.View, error) {
	p := &foreignPage{Submitter: call.PathValue("submitter"), From: strings.TrimSpace(call.FormValue("from"))}
	one := client.Page{Token: call.FormValue("pageToken")}
	from, err := strconv.ParseUint(p.From, 10, 64)
	if err != nil && p.From != "" {
		return page.View{}, &client.Problem{Status: http.StatusBadRequest, Code: "INVALID_FORM", Title: "No such nonce", Detail: "The lowest nonce to list must be a whole number."}
	}
	p.Foreign, err = page.ReadRows(call.Admin.ListForeign(client.WithPage(ctx, &one), p.Submitter, from))
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
	Covered   covered // of a write-off of all up to the nonce
	Error     string  // why the evidence was not read to its end; "": it was
}

// Bounds of the evidence of a form.
const (
	foreignPages = 20  // of 500 foreign transactions each, that are read
	foreignShown = 100 // foreign transactions that are listed
)

// covered is what a write-off of all foreign transactions up to a nonce decides.
type covered struct {
	Count int // foreign transactions
	Held  int // of them with an intent that is held
	First []client.OpenForeign
	More  bool // there are further ones, which were not read
}

func (c *covered) add(one client.OpenForeign) {
	c.Count++
	if one.TxID != "" {
		c.Held++
	}
	if len(c.First) < foreignShown {
		c.First = append(c.First, one)
	}
}

// Rest is how many are not listed.
func (c covered) Rest() int { return c.Count - len(c.First) }

// foreignFormOf reads the evidence. It makes 1 call about one transaction. About all up to a nonce it makes 1 for each
// 500 of them, at most 20.
func foreignFormOf(ctx context.Context, call page.Call) *foreignForm {
	f := &foreignForm{Submitter: call.PathValue("submitter"), Nonce: call.FormValue("nonce"), TxID: call.FormValue("txId"), Through: call.FormValue("through") == "true"}
	if nonce, err := strconv.ParseUint(f.Nonce, 10, 64); err == nil {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		f.Error = page.WhyUnread(f.read(ctx, call.Admin, nonce))
	}
	if f.TxID == "" && f.One != nil {
		f.TxID = f.One.TxID
	}
	return f
}

// read reads the foreign transaction of the nonce, or all up to it, which the API lists by their nonces.
func (f *foreignForm) read(ctx context.Context, admin *client.Client, nonce uint64) error {
	from := nonce
	if f.Through {
		from = 0
	}
	var one client.Page
	for range foreignPages {
		one.Token = one.Next
		rows, err := page.ReadRows(admin.ListForeign(client.WithPage(ctx, &one), f.Submitter, from))
		if err != nil {
			f.Covered.More = true
			return err
		}
		for _, row := range rows {
			if row.Nonce > nonce {
				return nil
			}
			f.Covered.add(row)
			if row.Nonce == nonce {
				f.One = &row
				return nil
			}
		}
		if one.Next == "" {
			return nil
		}
	}
	f.Covered.More = true
	return nil
}

// foreignAct decides about the foreign transaction of the nonce.
type foreignAct func(ctx context.Context, submitter string, nonce uint64, reason string) error

// decideForeign draws the form of a decision about foreign transactions and carries it out, once the nonce was typed. A form
// makes the calls of [foreignFormOf].
func decideForeign(ctx context.Context, call page.Call, title, body string, do foreignAct) (page.View, error) {
	id := call.PathValue("submitter")
	form := func(ctx context.Context, problem error) (page.View, error) {
		return page.View{Title: title, Body: body, Data: foreignFormOf(ctx, call), WayOn: wayOn(problem)}, nil
	}
	return page.ServeForm(ctx, call, foreignPath(id), form, func(ctx context.Context, reason string) error {
		nonce, err := strconv.ParseUint(call.PostFormValue("nonce"), 10, 64)
		if err != nil {
			return page.Refuse("nonce", "Give the nonce of a foreign transaction, a whole number.")
		}
		if err := page.Confirmed(call, strconv.FormatUint(nonce, 10)); err != nil {
			return err
		}
		return do(ctx, id, nonce, reason)
	})
}

// matchForeign records which held intent a foreign transaction was. POST makes 1 call.
func matchForeign(ctx context.Context, call page.Call) (page.View, error) {
	return decideForeign(ctx, call, "Match a foreign transaction", "incidents/match", func(ctx context.Context, submitter string, nonce uint64, reason string) error {
		txID := strings.TrimSpace(call.PostFormValue("txId"))
		if txID == "" {
			return page.Refuse("txId", "Give the txId of the held intent that the transaction was.")
		}
		_, err := call.Admin.MatchForeign(ctx, submitter, nonce, txID, reason)
		return err
	})
}

// writeOffCalls bounds the calls of one write-off. Each writes off up to 100 foreign transactions.
const writeOffCalls = 10

// errPart reports an act of several calls that ended at one of them, after others were carried out.
var errPart = errors.New("a part was carried out")

// writeOff records that foreign transactions were no request of this deployment. POST makes 1 call for one transaction, and
// up to 10 for all up to a nonce.
func writeOff(ctx context.Context, call page.Call) (page.View, error) {
	return decideForeign(ctx, call, "Write off foreign transactions", "incidents/write-off", func(ctx context.Context, submitter string, nonce uint64, reason string) error {
		if call.PostFormValue("through") != "true" {
			_, err := call.Admin.WriteOffForeign(ctx, submitter, &nonce, nil, reason)
			return err
		}
		for i := range writeOffCalls {
			done, err := call.Admin.WriteOffForeign(ctx, submitter, nil, &nonce, reason)
			if err != nil && i > 0 {
				return fmt.Errorf("%w: %w", errPart, err)
			}
			if err != nil || done.WrittenOff == 0 {
				return err
			}
		}
		return page.Refuse("nonce", fmt.Sprintf("%d calls have written off up to 100 transactions each, and more are left. Send the form again.", writeOffCalls))
	})
}

func foreignPath(submitter string) string { return page.Path("submitter", submitter) + "/foreign" }
