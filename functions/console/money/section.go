// Package money has the console's pages about transfers, payouts, conservation and halts.
package money

import (
	"embed"
	"slices"

	"github.com/fencepost/fencepost/functions/console/page"
)

//go:embed templates/*.html
var templates embed.FS

// Section returns the pages. A deployment without transfers has them too: they say that it has none.
func Section() page.Section {
	return page.Section{
		Templates: templates,
		Menu:      []page.Link{{Path: "/console/transfers", Name: "Transfers"}, {Path: "/console/conservation", Name: "Conservation"}},
		Routes: slices.Concat([]page.Route{
			{Pattern: "GET /console/transfers", Handle: listTransfers},
			{Pattern: "GET /console/transfers/{id}", Handle: showTransfer},
			{Pattern: "GET /console/conservation", Handle: showConservation},
		},
			page.Form("/console/transfers/{id}/{act}", actOnTransfer),
			page.Form("/console/conservation/check", check),
			page.Form("/console/conservation/findings/{id}/adjust", adjust),
			page.Form("/console/conservation/halts/{id}/resume", resumeHalt),
		),
	}
}

// ways has the way on after an act of these pages was refused.
var ways = page.Ways{Codes: map[string]string{
	"TOO_LATE":           "The state has changed meanwhile: the transfer has begun or ended, or another operator was faster. Nothing was changed by you. Open the page again.",
	"NOTHING_TO_RESOLVE": "The transfer does not wait for the answer to this operation any more. Nothing was changed. Open its page again to see where the money is now.",
	"BEYOND_HORIZON":     "The trading core has forgotten operations of this age and cannot answer. Search the core's journal for the req_id, then send this form again with what you found.",
	"NOT_FORGOTTEN":      "The ledger still knows the operation, so your statement is not needed. Choose \"the ledger's own answer\" and send the form again.",
	"EVIDENCE_DIFFERS":   "The journals contradict your statement. Nothing was changed. Read the journal's line again; if it is right, the books are wrong: see conservation.",
	"STATEMENT_STANDS":   "Another statement about this payout is in force. Withdraw that one first, if it is wrong.",
	"NO_STATEMENT":       "There is no statement to withdraw, or it has taken effect already and cannot be withdrawn.",
	"ACCOUNT_MOVED":      "The account has changed since the last check, so the difference may be another one now. Run a check, then adjust what it finds.",
	"OUT_OF_RANGE":       "The adjusted balance would be below zero or too large. Nothing was changed. Decide which of the two books is right before you go on.",
	"PROOF_USED":         "That transaction already proves another payout. One payment proves one payout: look for the right transaction.",
}, Causes: map[string]string{
	"UNAVAILABLE":  "A ledger or the chain's nodes did not answer.",
	"SYSTEM_ERROR": "A ledger did not answer.",
}}
