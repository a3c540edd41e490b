package admin

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/functions/transactions"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// foreignPage is the number of foreign transactions that one call writes off.
const foreignPage = 100

// listForeign lists the nonces consumed by foreign transactions for which no request is known. It also
// lists the intents held because of them.
func (a *Server) listForeign(r *http.Request, s txmanager.Submitter, q map[string]string) (serve.List, error) {
	from, err := nonceOf("from", q["from"])
	if err != nil {
		return serve.List{}, err
	}
	return serve.PageList("foreign", q, serve.ForeignPlace, func(after int64, limit int) ([]store.OpenHold, error) {
		if from != nil {
			after = max(after, *from-1)
		}
		if _, err := a.Store.Submitter(r.Context(), s); err != nil {
			return nil, err
		}
		return a.Store.OpenHolds(r.Context(), s, after, limit)
	}, func(h store.OpenHold) int64 { return h.Nonce })
}

type writeOffRequest struct {
	reasonRequest
	Nonce   *uint64 `json:"nonce"`
	Through *uint64 `json:"through"` // all up to this nonce, the highest that the operator has read
}

// writeOffForeign records that a foreign transaction, or each one up to a nonce, was no request of
// ours. The intents held because of it continue. It covers only what the operator named: a later
// release can leave further ones open.
func (a *Server) writeOffForeign(w http.ResponseWriter, r *http.Request, c submitterCall[writeOffRequest]) error {
	if (c.body.Nonce == nil) == (c.body.Through == nil) {
		return web.FieldProblem("nonce", "is required, or through in its place: one nonce, or the highest of several, as GET …/foreign lists them")
	}
	d := store.HoldDecision{Submitter: c.on, Limit: foreignPage, By: c.by, Reason: c.reason, Nonce: c.body.Nonce, Through: c.body.Through}
	if mustPropose(r) {
		subject := submitterSubject(c.on)
		which := "up to nonce"
		if subject["through"] = d.Through; d.Nonce != nil {
			delete(subject, "through")
			subject["nonce"], which = d.Nonce, "of nonce"
		}
		return a.proposeForeign(w, r, proposed{"foreign", subject, c.reason,
			fmt.Sprintf("writes the foreign transactions %s %d of %s off; the intents held for them continue", which, *cmp.Or(d.Nonce, d.Through), c.on)})
	}
	out, err := a.Store.WriteOff(r.Context(), d)
	if err != nil {
		return err
	}
	if out.WrittenOff > 0 {
		a.Log.WarnContext(r.Context(), "foreign transactions written off", telemetry.SubmitterKey, c.on, "number", out.WrittenOff,
			"proceeded", out.Proceeded, "operator", c.by, "reason", c.reason, telemetry.NodeIDKey, a.Node)
		a.EnqueueAdvance(r.Context(), c.on, out.Token)
	}
	return web.Reply(w, r, http.StatusOK, client.WriteOffResult{Submitter: string(c.on), WrittenOff: out.WrittenOff, Proceeded: out.Proceeded, Remaining: out.Remaining})
}

// proposeForeign proposes a decision about foreign transactions that need one.
func (a *Server) proposeForeign(w http.ResponseWriter, r *http.Request, what proposed) error {
	if _, err := a.Store.Submitter(r.Context(), txmanager.Submitter(what.subject["submitter"].(string))); err != nil {
		return err
	}
	return proposeIf(a.Desk, w, r, what, store.ErrNoHold, func(now struct{ Foreign []any }) error {
		if len(now.Foreign) == 0 {
			return store.ErrNoHold
		}
		return nil
	})
}

type matchRequest struct {
	reasonRequest
	Nonce *uint64 `json:"nonce"`
	TxID  string  `json:"txId"`
}

// matchForeign records that a foreign transaction was the request of a held intent. The intent gets
// that transaction's outcome and is never sent.
func (a *Server) matchForeign(w http.ResponseWriter, r *http.Request, c submitterCall[matchRequest]) error {
	if c.body.Nonce == nil {
		return web.FieldProblem("nonce", "is required: the nonce that the foreign transaction consumed, as GET …/foreign lists it")
	}
	id, ok := serve.ParseTxID(c.body.TxID)
	if !ok {
		return web.FieldProblem("txId", "is required: the UUID of the held intent that the foreign transaction was, "+serve.UUIDForm)
	}
	d := store.HoldDecision{Submitter: c.on, Nonce: c.body.Nonce, By: c.by, Reason: c.reason}
	if mustPropose(r) {
		subject := submitterSubject(c.on)
		subject["nonce"] = c.body.Nonce
		return a.proposeForeign(w, r, proposed{"foreign", subject, c.reason,
			fmt.Sprintf("ends intent %s as the foreign transaction of nonce %d of %s", id, *c.body.Nonce, c.on)})
	}
	out, err := a.Store.MatchHold(r.Context(), d, id)
	if err != nil {
		return err
	}
	a.Log.WarnContext(r.Context(), "foreign transaction matched", telemetry.SubmitterKey, c.on, telemetry.TxIDKey, id, "nonce", *c.body.Nonce,
		"state", out.State, "operator", c.by, "reason", c.reason, telemetry.NodeIDKey, a.Node)
	a.EnqueueAdvance(r.Context(), c.on, out.Token)
	return web.Reply(w, r, http.StatusOK, transactions.ActResult{TxID: id, State: out.State, SubState: out.SubState})
}
