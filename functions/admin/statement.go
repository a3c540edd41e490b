package admin

import (
	"context"
	"fmt"
	"net/http"

	"github.com/fencepost/fencepost/functions/serve"
	usertransfers "github.com/fencepost/fencepost/functions/transfers"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// What the operator requests for a payout that was not paid.
const (
	repostPayout = "repost"
	refundPayout = "refund"
)

type statementRequest struct {
	reasonRequest
	Paid          *bool          `json:"paid"`
	TxHash        serve.Optional `json:"tx_hash"`        // the transaction that paid; only if paid
	Then          serve.Optional `json:"then"`           // repost or refund; only if not paid
	MaxWindow     *uint64        `json:"max_window"`     // only if not paid, for what a restored database may have lost
	OtherPayments []string       `json:"other_payments"` // transactions with the same effect that were other payments; only if not paid
}

// statePayout records an operator's statement about a payout for which the database has no proof, and
// tries it at once. It checks a named transaction against the chain. An unpaid payout is reposted or
// refunded once no lost transaction can be mined any more.
func (a *TransferServer) statePayout(w http.ResponseWriter, r *http.Request, c transferCall[statementRequest]) error {
	st, err := statementOf(c.body)
	if err != nil {
		return err
	}
	st.By, st.Reason = c.by, c.reason
	t, err := a.Transfers.Store.Load(r.Context(), c.on)
	if err != nil {
		return err
	}
	found, doubtful, err := a.Payouts.Doubtful(r.Context(), t)
	if err != nil {
		return err
	}
	if !doubtful {
		return transfer.ErrNothingToResolve
	}
	if !st.Paid && found.Older && found.State != txmanager.Confirmed {
		if st.NoncesBelow, err = a.lostNonces(r.Context(), txmanager.Submitter(t.Payout.Submitter), c.body.MaxWindow); err != nil {
			return err
		}
	}
	if mustPropose(r) {
		return a.propose(w, r, proposed{"transfer", map[string]any{"reqId": t.ReqID}, st.Reason, statementEffect(t.ReqID, st)})
	}
	if err := a.Store.StatePayout(r.Context(), t.ReqID, st); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "an operator states whether a payout was paid", "reqId", t.ReqID, "by", st.By, "reason", st.Reason,
		"paid", st.Paid, "txHash", st.TxHash, "refund", st.Refund, "noncesBelow", st.NoncesBelow, "otherPayments", st.OtherPayments)
	return a.replyDriven(w, r, t.ReqID)
}

// statementEffect describes what a statement did.
func statementEffect(reqID string, st store.PayoutStatement) string {
	switch {
	case st.Paid:
		return fmt.Sprintf("states that payout %s was paid by %s", reqID, st.TxHash)
	case st.Refund:
		return fmt.Sprintf("states that payout %s was not paid, and gives it back", reqID)
	}
	return fmt.Sprintf("states that payout %s was not paid, and pays it again", reqID)
}

// statementOf checks an operator's statement.
func statementOf(body statementRequest) (st store.PayoutStatement, err error) {
	if body.Paid == nil {
		return st, web.FieldProblem("paid", "is required: true where a transaction has paid the payout, false where none has")
	}
	txHash, err := body.TxHash.Of("tx_hash")
	if err != nil {
		return st, err
	}
	then, err := body.Then.Of("then")
	if err != nil {
		return st, err
	}
	st.Paid = *body.Paid
	if st.Paid {
		if then != "" || body.MaxWindow != nil || len(body.OtherPayments) > 0 {
			return st, web.FieldProblem("paid", "is true: then, max_window and other_payments are allowed only with paid false")
		}
		st.TxHash, err = hashOf("tx_hash", txHash)
		return st, err
	}
	if txHash != "" {
		return st, web.FieldProblem("tx_hash", "names a payment, and paid is false: omit it, or send paid true")
	}
	if then != repostPayout && then != refundPayout {
		return st, web.FieldProblem("then", "is %.40q: want repost or refund", then)
	}
	st.Refund = then == refundPayout
	for _, text := range body.OtherPayments {
		hash, err := hashOf("other_payments", text)
		if err != nil {
			return st, err
		}
		st.OtherPayments = append(st.OtherPayments, hash)
	}
	return st, nil
}

func hashOf(field, text string) (string, error) {
	h, err := txmanager.ParseHash(text)
	if err != nil {
		return "", web.FieldProblem(field, "is %.80q: want the hash of a transaction, 0x and 64 hex digits", text)
	}
	return h.String(), nil
}

// lostNonces returns the nonce below which the payer can have signed transactions that a lost database
// had. It is the chain's count plus the largest window that the payer can have had. If a release has
// filled nonces since, it uses the count from before the placeholders.
func (a *TransferServer) lostNonces(ctx context.Context, s txmanager.Submitter, window *uint64) (uint64, error) {
	known, err := a.Store.LostNonces(ctx, s)
	if err != nil {
		return 0, err
	}
	if window == nil || *window < known.Window || *window > widestWindow {
		return 0, web.FieldProblem("max_window", "is required: the largest maxInFlight that the payer can have had when the database was lost, from %d (the widest that it has had by this database) to %d", known.Window, widestWindow)
	}
	if count, filled, err := a.Store.FilledCount(ctx, s); err != nil || filled {
		return count + *window, err
	}
	chain, err := a.ChainOf(s)
	if err != nil {
		return 0, err
	}
	v, err := chain.Query(ctx, txmanager.ChainQuery{Submitter: s, Account: true, FinalCount: true})
	if err != nil {
		return 0, web.UnavailableBecause(err, "the chain's count of the payer could not be read; nothing was recorded")
	}
	count := v.Account.LatestCount
	if v.FinalCount != nil {
		count = max(count, *v.FinalCount)
	}
	return count + *window, nil
}

// withdrawStatement withdraws an operator's statement about a payout, unless it has taken effect.
func (a *TransferServer) withdrawStatement(w http.ResponseWriter, r *http.Request, c transferCall[reasonRequest]) error {
	if _, err := a.Transfers.Store.Load(r.Context(), c.on); err != nil {
		return err
	}
	if err := a.Store.WithdrawStatement(r.Context(), c.on, c.by, c.reason); err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "an operator withdraws a statement about a payout", "reqId", c.on, "by", c.by, "reason", c.reason)
	return a.replyDriven(w, r, c.on)
}

// replyDriven drives the payout as far as possible and answers as GET …/why does.
func (a *TransferServer) replyDriven(w http.ResponseWriter, r *http.Request, reqID string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), usertransfers.DriveWithin)
	defer cancel()
	t, err := a.Transfers.Coordinator.Drive(ctx, reqID)
	if err != nil {
		a.Log.WarnContext(ctx, "a payout was not driven: the sweep will find it", "reqId", reqID, "error", err.Error())
	} else if err := a.Transfers.LeaveStep(ctx, t); err != nil {
		a.Log.WarnContext(ctx, "no step task: the sweep will find the transfer", "reqId", reqID, "error", err.Error())
	}
	return serve.Reply(w, r)(a.why(r, reqID))
}

func viewOfStatement(s store.PastStatement) client.Statement {
	v := client.Statement{
		Paid: s.Paid, TxHash: s.TxHash, NoncesBelow: s.NoncesBelow, OtherPayments: s.OtherPayments, By: s.By, Reason: s.Reason, At: s.At.UTC(), Counts: s.Counts,
		ActedAt: s.ActedAt, WithdrawnAt: s.WithdrawnAt, WithdrawnBy: s.WithdrawnBy, WithdrawReason: s.WithdrawReason,
	}
	switch {
	case s.Paid:
	case s.Refund:
		v.Then = refundPayout
	default:
		v.Then = repostPayout
	}
	return v
}
