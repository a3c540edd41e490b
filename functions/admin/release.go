package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

type releaseRequest struct {
	reasonRequest
	Incident *int                  `json:"incident"`
	Mode     txmanager.ReleaseMode `json:"mode"`
	Count    *uint64               `json:"count"`
	Requests map[uint64]string     `json:"requests"`
	Hashes   map[uint64]string     `json:"hashes"`   // the consuming transactions of nonces for which no node returns one
	Executed map[uint64]string     `json:"executed"` // the operator's proof that a named request was carried out, for requests that no node can prove
	Others   *string               `json:"others"`
	Fill     *uint64               `json:"fill"` // the largest window that the account can have had when the database was lost
}

// widestWindow is the largest max_in_flight that the schema allows.
const widestWindow = 10_000

// othersMatching makes a release name each transaction that matches exactly one intent.
const othersMatching = "matching"

// releaseResponse is the report of a release, with the manager's own types.
type releaseResponse struct {
	client.ReleaseReport
	NotOnChain []txmanager.FinalTx `json:"notOnChain,omitempty"`
	Named      []txmanager.Naming  `json:"named"`
	Filling    *txmanager.Filling  `json:"filling"`
}

// notLeaderRetryAfter is the time after which a release can expect the lease to be free.
const notLeaderRetryAfter = 2 * time.Second

// release ends one PROTECT incident by an operator's decision and stores the reason. The mode resume
// says that the observation was wrong; resync accepts the loss.
func (a *Server) release(w http.ResponseWriter, r *http.Request, c submitterCall[releaseRequest]) error {
	leave, err := leaveOf(c.body)
	if err != nil {
		return err
	}
	if leave.DryRun, err = dryRun(r, leave.Mode); err != nil {
		return err
	}
	leave.By, leave.Reason = c.by, c.reason
	if _, err := a.ChainOf(c.on); err != nil {
		return err
	}
	if mustPropose(r) && !leave.DryRun {
		// Whether the chain allows it is evaluated when it is carried out. A dry run shows the result in advance.
		what := proposed{"release", submitterSubject(c.on), leave.Reason, fmt.Sprintf("ends PROTECT incident %d of %s by %s", leave.Incident, c.on, leave.Mode)}
		return proposeIf(a.Desk, w, r, what, store.ErrUnknownSubmitter, func(now struct{ Incident *int }) error {
			if now.Incident == nil || *now.Incident != leave.Incident {
				return releaseProblem(txmanager.ErrIncidentClosed)
			}
			return nil
		})
	}
	out, err := a.Release(r.Context(), c.on, leave)
	if err != nil {
		return releaseProblem(err)
	}
	said := "released from PROTECT"
	if leave.DryRun {
		said = "a release from PROTECT was tried, and nothing changed"
	}
	a.Log.WarnContext(r.Context(), said, telemetry.SubmitterKey, c.on, telemetry.NodeIDKey, a.Node,
		"incident", leave.Incident, "mode", leave.Mode, "operator", c.by, "reason", leave.Reason, "displaced", out.Displaced, "notOnChain", out.ReorgedFinals, "named", out.Named, "filling", out.Filling)
	report := client.ReleaseReport{Submitter: string(c.on), Incident: leave.Incident, Displaced: out.Displaced, NextNonce: out.NextNonce, DryRun: leave.DryRun}
	return web.Reply(w, r, http.StatusOK, releaseResponse{report, out.ReorgedFinals, append([]txmanager.Naming{}, out.Named...), out.Filling})
}

// dryRun reads whether a release is only simulated.
func dryRun(r *http.Request, mode txmanager.ReleaseMode) (bool, error) {
	q, err := serve.Parameters(r, "dryRun")
	if err != nil {
		return false, err
	}
	switch text := q["dryRun"]; {
	case text == "false", text == "":
		return false, nil
	case text != "true":
		return false, web.FieldProblem("dryRun", "is %q: want true or false", text)
	case mode != txmanager.Resync:
		return false, web.FieldProblem("dryRun", "goes with resync")
	}
	return true, nil
}

// leaveOf checks and converts an operator's decision.
func leaveOf(body releaseRequest) (txmanager.ReleaseRequest, error) {
	l := txmanager.ReleaseRequest{Mode: body.Mode, Requests: body.Requests}
	switch {
	case body.Incident == nil:
		return l, web.FieldProblem("incident", "is required: the number that GET /admin/v1/submitters/{submitter} shows under protect")
	case body.Mode != txmanager.Resume && body.Mode != txmanager.Resync:
		return l, web.FieldProblem("mode", "is %q: send resume (the chain observation was wrong) or resync (the loss is accepted)", body.Mode)
	}
	var err error
	if body.Mode == txmanager.Resume {
		err = body.checkResume()
	} else {
		err = body.checkResync()
	}
	if err != nil {
		return l, err
	}
	l.Matching, l.Fill = body.Others != nil, body.Fill
	if err := checkRequests(body.Requests); err != nil {
		return l, err
	}
	l.Incident = *body.Incident
	if body.Count != nil {
		l.Count = *body.Count
	}
	return l, proofOf(body, &l)
}

// checkResume refuses the members that go with resync.
func (b releaseRequest) checkResume() error {
	for _, m := range []struct {
		field string
		given bool
		more  string
	}{
		{"count", b.Count != nil, ""}, {"requests", b.Requests != nil, ": resume takes nothing for lost"}, {"hashes", b.Hashes != nil, ""},
		{"executed", b.Executed != nil, ""}, {"others", b.Others != nil, ""}, {"fill", b.Fill != nil, ""},
	} {
		if m.given {
			return web.FieldProblem(m.field, "goes with resync%s", m.more)
		}
	}
	return nil
}

// checkResync checks the members of a resync, except the names.
func (b releaseRequest) checkResync() error {
	switch {
	case b.Count == nil:
		return web.FieldProblem("count", "is required for resync: the chain's count of the account at its finalized block, which you accept")
	case b.Fill != nil && (*b.Fill < 1 || *b.Fill > widestWindow):
		return web.FieldProblem("fill", "is %d: want the largest window that the account can have had, from 1 to %d, or leave it out", *b.Fill, widestWindow)
	case b.Others != nil && *b.Others != othersMatching:
		return web.FieldProblem("others", "is %q: want %q, or leave it out", *b.Others, othersMatching)
	}
	return nil
}

// checkRequests checks the requestId that a release names for each nonce.
func checkRequests(requests map[uint64]string) error {
	named := make(map[string]uint64, len(requests))
	for n, name := range requests {
		if err := serve.RequestID("requests", name); err != nil {
			return web.FieldProblem("requests", "of nonce %d: want a requestId of 1 to 128 bytes, or %q where no request here was it", n, txmanager.NoRequest)
		}
		if name != txmanager.NoRequest && serve.IsNone(name) {
			return web.FieldProblem("requests", "of nonce %d: is %q, which is no requestId; send a requestId, or %q if the nonce was no request of this deployment", n, name, txmanager.NoRequest)
		}
		if other, twice := named[name]; twice && name != txmanager.NoRequest {
			return web.FieldProblem("requests", "names %q for nonce %d and for nonce %d: a request runs once", name, min(n, other), max(n, other))
		}
		named[name] = n
	}
	return nil
}

// proofOf checks the operator's proof that the named requests were carried out.
func proofOf(body releaseRequest, l *txmanager.ReleaseRequest) error {
	l.Executed, l.Hashes = body.Executed, make(map[uint64]txmanager.Hash, len(body.Hashes))
	for n, text := range body.Hashes {
		h, err := txmanager.ParseHash(text)
		if err != nil {
			return web.FieldProblem("hashes", "of nonce %d: is %.70q: want the hash of the transaction that consumed the nonce, 0x and 64 hex digits", n, text)
		}
		l.Hashes[n] = h
	}
	for n, how := range body.Executed {
		_, proved := body.Hashes[n]
		switch name := body.Requests[n]; {
		case strings.TrimSpace(how) == "" || len(how) > serve.MaxReason:
			return web.FieldProblem("executed", "of nonce %d: send the evidence that the request was executed, in at most %d bytes; it is stored with your name", n, serve.MaxReason)
		case name == "" || name == txmanager.NoRequest:
			return web.FieldProblem("executed", "of nonce %d: needs a requestId in requests for that nonce, which it does not have", n)
		case proved:
			return web.FieldProblem("executed", "of nonce %d: give either the hash, which the chain's nodes are asked about, or your own statement", n)
		}
	}
	return nil
}

// releaseProblem returns what an operator may see of a release that did not happen.
func releaseProblem(err error) error {
	var count txmanager.FinalCountError
	var back txmanager.FinalsMissingError
	var foreign txmanager.UnnamedNonceError
	var naming txmanager.NamingError
	var fill txmanager.FillError
	var unproved txmanager.UnprovedError
	switch {
	case errors.As(err, &unproved):
		return web.FieldProblem(unproved.Field, "cannot be taken so: %s; nothing was changed", unproved.Error())
	case errors.As(err, &fill):
		return web.FieldProblem("fill", "%s; nothing was changed", fill.Error())
	case errors.Is(err, txmanager.ErrFillRequired):
		return web.FieldProblem("mode", "cannot be resume: %s; nothing was changed", txmanager.ErrFillRequired.Error())
	case errors.Is(err, txmanager.ErrNotYetFinal), errors.Is(err, txmanager.ErrStillReading):
		return web.UnavailableBecause(err, err.Error()+": ask again; nothing was changed")
	case errors.As(err, &naming):
		return web.FieldProblem("requests", "has a name that cannot be honoured: %s; nothing was changed", naming.Error())
	case errors.Is(err, store.ErrRetired):
		return web.FieldProblem("requests", "has a request that is not stored here, and the submitter is retired: nothing of it was lost; send %q for that nonce; nothing was changed", txmanager.NoRequest)
	case errors.Is(err, txmanager.ErrNotLeader):
		return &web.Problem{Code: web.Code{Name: "NOT_LEADER", Status: http.StatusConflict}, RetryAfter: notLeaderRetryAfter,
			Detail: "the submitter is being served; nothing was changed"}
	case errors.Is(err, txmanager.ErrDatabaseNotAccepted):
		return web.NewProblem(serve.TooLate, "%s; nothing was changed", txmanager.ErrDatabaseNotAccepted)
	case errors.Is(err, txmanager.ErrIncidentClosed):
		return web.NewProblem(serve.TooLate, "that incident is not open; nothing was changed: read the submitter again")
	case errors.As(err, &count):
		return web.FieldProblem("count", "is not the one to accept: %s; nothing was changed", count.Error())
	case errors.As(err, &back):
		return web.FieldProblem("mode", "cannot be resume yet: %s; they are being sent again: wait until they are back, or accept the loss by resync; nothing was changed", back.Error())
	case errors.As(err, &foreign):
		return web.FieldProblem("requests", "must say for each which request it was, or %q: %s; nothing was changed", txmanager.NoRequest, foreign.Error())
	case errors.Is(err, txmanager.ErrNoQuorum):
		return web.UnavailableBecause(err, "the chain's nodes gave different answers, and no quorum agrees; nothing was changed; send it again later")
	}
	return err
}

// acceptDatabase accepts a restored database, by an operator's decision. Every
// submitter stays in PROTECT until an operator releases it.
func (a *Server) acceptDatabase(w http.ResponseWriter, r *http.Request, c call[struct{}, reasonRequest]) error {
	if mustPropose(r) {
		what := proposed{"accept", map[string]any{}, c.reason, "accepts this database"}
		return proposeIf(a.Desk, w, r, what, store.ErrDatabaseAccepted, func(now struct{ IsAcceptedDatabase bool }) error {
			if now.IsAcceptedDatabase {
				return store.ErrDatabaseAccepted
			}
			return nil
		})
	}
	a.Mark.Adopt(r.Context(), a.Log, c.by)
	if err := a.Store.AcceptDatabase(r.Context(), c.by, c.reason); err != nil {
		return err
	}
	a.Mark.Accepted(r.Context(), a.Log)
	a.Log.WarnContext(r.Context(), "restored database accepted", "operator", c.by, "reason", c.reason, telemetry.NodeIDKey, a.Node)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
