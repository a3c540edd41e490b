package money_test

import (
	"net/url"
	"testing"

	"github.com/fencepost/fencepost/functions/console/consoletest"
	"github.com/fencepost/fencepost/functions/console/money"
	"github.com/fencepost/fencepost/shared/client"
)

// A page does not show a row as absent whose read failed, and a resolution of an unread transfer has no button.
func TestUnreadIsNotNone(t *testing.T) {
	t.Parallel()
	unread := &client.Problem{Status: 503, Code: "UNAVAILABLE", Detail: "ask again"}
	c := consoletest.New(t, money.Section(), consoletest.Answers{"GET " + api + "/why": unread, "GET /admin/v1/conservation": unread})
	for path, none := range map[string]string{
		page + "/resolve": "waits for no ledger", page + "/withdraw": "No statement can be withdrawn",
		"/console/conservation/halts/9/resume": "This halt is not", "/console/conservation/findings/3/adjust": "This finding does not stand",
	} {
		c.Shows(path, 1, "could not be read: ask again")
		c.Lacks(path, nil, none)
	}
	c.Lacks(page+"/resolve", nil, `class="danger"`)
}

// To resolve a payout's deposit cancels its payment: the page says so, and wants a text to be typed.
func TestResolveOfAPayoutCancelsItsPayment(t *testing.T) {
	t.Parallel()
	const says, asks = "Cancel the payment if it can still be cancelled", "Ask the ledger for its answer"
	w := why(begun...)
	w.Payout = &client.PayoutTerms{Submitter: payer, BaseUnits: "1"}
	a := consoletest.Answers{"GET " + api + "/why": w, "GET /admin/v1/tx": map[string]any{}, "POST " + api + "/resolve": w.Transfer}
	c := consoletest.New(t, money.Section(), a)
	c.Shows(page+"/resolve", 1, says, "Type <code>9G5FAV</code>", `name="op" value="deposit"`)
	c.Lacks(page+"/resolve", nil, asks, `name="outcome"`)
	c.Shows(page, 2, says)
	c.Refuses(page+"/resolve", url.Values{"op": {"deposit"}, "reason": {"r"}}, 400, 1, "Type 9G5FAV to confirm", says)
	a["GET "+api+"/why"] = why(begun...)
	c.Shows(page+"/resolve", 1, asks, `name="outcome"`)
	w.State = client.TransferCompensating // the refund is the ledger's again
	a["GET "+api+"/why"] = w
	c.Shows(page+"/resolve", 1, asks)
}
