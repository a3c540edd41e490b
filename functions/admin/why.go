package admin

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	usertransfers "github.com/fencepost/fencepost/functions/transfers"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
)

// why shows an operator where a transfer's money is, the evidence, and what would move the transfer forward. Of a payout it
// also shows operators' statements.
func (a *TransferServer) why(r *http.Request, reqID string) (client.Why, error) {
	story, err := a.Transfers.Store.Why(r.Context(), reqID)
	if err != nil {
		return client.Why{}, err
	}
	out := whyOf(story, a.RescueAfter)
	if story.Transfer.Payout == nil {
		return out, nil
	}
	said, provedBy, err := a.Store.PayoutStatements(r.Context(), reqID)
	out.Statements, out.ProvedBy = serve.ViewsOf(said, viewOfStatement), provedBy
	return out, err
}

func whyOf(s transfers.Story, rescueAfter time.Duration) client.Why {
	t := s.Transfer
	out := client.Why{
		Transfer: usertransfers.ViewOf(t), UserID: t.UserID, CID: t.CID, StateSince: t.StateAt.UTC(), RetryCount: t.RetryCount, Failures: t.Failures,
		Where: whereIs(t), LastEvidence: evidenceOf(s), WouldUnblock: unblock(t),
		History: make([]client.Transition, len(s.History)), Resolutions: make([]client.Resolution, len(s.Resolutions)),
	}
	if !t.State.Terminal() && !t.Foreign {
		out.NextTryAt = new(t.Now.Add(t.NextIn(rescueAfter)).UTC())
	}
	if p := t.Payout; p != nil {
		out.Payout = &client.PayoutTerms{Submitter: p.Submitter, ChainID: p.ChainID, Token: p.Token, Address: p.Address, BaseUnits: p.BaseUnits}
	}
	for i, h := range s.History {
		out.History[i] = client.Transition{At: h.At.UTC(), State: client.TransferState(h.State.String()), Reason: string(h.Reason), RetryCount: h.RetryCount}
		if h.From != nil {
			out.History[i].From = client.TransferState(h.From.String())
		}
	}
	for i, x := range s.Resolutions {
		out.Resolutions[i] = client.Resolution{
			Op: x.Op, By: x.By, Reason: x.Reason, At: x.At.UTC(), Verdict: x.Verdict, Refusal: x.VerdictReason, AnsweredAt: x.AnsweredAt, Outcome: x.Outcome, Line: x.Line,
		}
	}
	if n := len(s.Acknowledged); n > 0 {
		k := s.Acknowledged[n-1]
		out.Acknowledged = &client.Acknowledgement{State: client.TransferState(k.State.String()), By: k.By, Reason: k.Reason, At: k.At.UTC(), Until: k.Until.UTC()}
	}
	return out
}

// whereIs returns where the money is, as far as the row proves it.
func whereIs(t transfer.Transfer) string {
	amount, source, target := t.Amount()+" "+t.Asset, t.Type.Source(), t.Type.Target()
	switch t.State {
	case transfer.Init:
		return fmt.Sprintf("%s at %s: no ledger was called yet", amount, source)
	case transfer.SourcePending:
		return fmt.Sprintf("%s at %s, or in flight: the withdrawal was asked for, and its result is unknown", amount, source)
	case transfer.SourceDone:
		return fmt.Sprintf("%s in flight: withdrawn from %s, and %s was not asked yet", amount, source, target)
	case transfer.TargetPending:
		return fmt.Sprintf("%s in flight, or at %s: withdrawn from %s; the deposit was asked for, and its result is unknown", amount, target, source)
	case transfer.Committed:
		return fmt.Sprintf("%s at %s", amount, target)
	case transfer.Compensating:
		return fmt.Sprintf("%s in flight, or back at %s: %s refused it for ever, the refund was asked for, and its result is unknown", amount, source, target)
	case transfer.RolledBack:
		return fmt.Sprintf("%s back at %s: %s refused it", amount, source, target)
	}
	return fmt.Sprintf("%s at %s: it never left", amount, source)
}

// evidenceOf returns the last evidence.
func evidenceOf(s transfers.Story) string {
	t := s.Transfer
	if t.LastUnknown != "" {
		return fmt.Sprintf("%s (%d unknown answers in a row, the last at %s)", t.LastUnknown, t.Failures, t.UpdatedAt.UTC().Format(time.RFC3339))
	}
	if t.Reason != "" {
		return fmt.Sprintf("%s since %s: %s", t.State, t.StateAt.UTC().Format(time.RFC3339), t.Reason)
	}
	return fmt.Sprintf("%s since %s", t.State, t.StateAt.UTC().Format(time.RFC3339))
}

// unblock returns what t waits for and what an operator can do about it.
func unblock(t transfer.Transfer) string {
	op := t.State.AwaitedOp()
	who := t.Type.Source()
	if op == transfer.Deposit {
		who = t.Type.Target()
	}
	switch {
	case t.State.Terminal():
		return ""
	case t.Foreign:
		return "the database is not the one written last: reconcile it, then POST /admin/v1/database/accept"
	case t.State == transfer.Init && t.Payout != nil:
		return fmt.Sprintf("any worker, once no PROTECT incident of %s is open, no halt is open for it, and its asset is ACTIVE: it begins without help, or fails as EXPIRED when it is too old; POST …/cancel ends it; neither if the database was restored since it was accepted", t.Payout.Submitter)
	case t.State == transfer.Init:
		return "any worker: it begins without help, or fails as EXPIRED when it is too old; POST …/cancel ends it; neither if the database was restored since it was accepted"
	case op == "":
		return "any worker, without an operator's action"
	case strings.Contains(t.LastUnknown, wire.BeyondHorizon.Name):
		return fmt.Sprintf("an operator: the trading core has forgotten operations as old as this %s, so it neither applies nor refuses it (BEYOND_HORIZON). "+
			"Find the line of %s %s in the core's journal, then POST …/resolve {\"op\": %q, \"outcome\": \"applied\" or \"not_applied\", \"line\": …}; without line a check of conservation has to prove it", op, op, t.ReqID, op)
	case op == transfer.Refund:
		return fmt.Sprintf("an answer of %s to the refund, which is called until it succeeds and is never refused. "+
			"Find out why %s gives no answer, and fix it; POST …/resolve {\"op\": \"refund\"} reads the stored answer", who, who)
	case who == transfer.Chain:
		return fmt.Sprintf("the end of the managed transaction of %s with requestId %s: CONFIRMED with proof of payment, or FAILED. "+
			"POST …/resolve {\"op\": \"deposit\"} cancels it if it can still be cancelled, and the money goes back. "+
			"While a PROTECT incident of the payer is open it waits. Where last_evidence says that an operator must state whether it was paid: "+
			"POST …/payout-statement; a wrong statement is taken back by POST …/payout-statement/withdraw", t.Payout.Submitter, t.ReqID)
	}
	return fmt.Sprintf("an answer of %s to the %s: done, or a stored refusal. Find out why %s gives no answer, and fix it; "+
		"POST …/resolve {\"op\": %q} makes the ledger answer its stored result, or refuse the operation for ever if it has none", who, op, who, op)
}
