package load

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers/rows"
	"github.com/fencepost/fencepost/emulator/verify/torture/faults"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	product "github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Survives reports whether a request with the end e before a restore may have the end now
// after it. An effect on the chain stays. A request without one must never get one, but may
// have another name for its end.
func (e End) Survives(now End) bool {
	if e.OnChain() {
		return now.State == e.State && (e.State == txmanager.Confirmed || now.Sub == e.Sub)
	}
	return now.State == txmanager.Failed && now.Sub != txmanager.Reverted
}

// OnChain reports whether the chain has the request's transaction.
func (e End) OnChain() bool { return e.State == txmanager.Confirmed || e.Sub == txmanager.Reverted }

// recordStoredRequest handles REQUEST_RECORDED (the chain has the request, do not post it
// again). The recorded state is the end of the request. It returns false if it could not be read.
func (c *caller) recordStoredRequest(ctx context.Context, begun int) (clear bool) {
	query := url.Values{"submitter": {string(c.Request.Submitter)}, "requestId": {c.Request.RequestID}}
	a := c.Insist(ctx, http.MethodGet, "/api/v1/tx/by-request?"+query.Encode(), nil)
	if a.IsUnclear() || c.Replaced(begun) {
		return false
	}
	before, now := c.Request.Answers(), reached(a)
	if a.Status != http.StatusOK || !now.OnChain() || before.ID != "" && before.ID != a.TxID && !c.Ledger.MayBeLost(before.Generation, before.IDAt) {
		c.Contradict("REQUEST_RECORDED of what was accepted as %q; asked for by its requestId: got %s", before.ID, a)
	}
	c.Request.Change(func(t *Answers) {
		t.Recorded, t.Generation, t.ID, t.IDAt = true, begun, a.TxID, time.Now()
		if t.End == nil {
			t.End, t.EndAt, t.EndGeneration = &now, time.Now(), begun
		}
	})
	return true
}

// Restore puts the copy in place by putBack, and follows docs/runbooks/restore.md up to the
// releases. It waits until no account has pending transactions, and accepts the copy. Then it
// cancels again each request that a caller knows as cancelled or refused.
func (o *Operator) Restore(ctx context.Context, accounts []txmanager.Submitter, backedUp time.Time, putBack func() error) error {
	o.restored.Lock()
	defer o.restored.Unlock()
	if err := putBack(); err != nil {
		return err
	}
	o.restoredAt = make(map[txmanager.Submitter]bool)
	for _, s := range accounts {
		o.restoredAt[s] = true
	}
	hasPending := func(s txmanager.Submitter) bool {
		return steps.Run(func() { o.finalCount(ctx, s) }) != nil
	}
	o.until(ctx, "nothing is pending", func() bool { return !slices.ContainsFunc(accounts, hasPending) })
	o.until(ctx, "the copy is accepted", func() bool {
		a := o.Ask(ctx, http.MethodPost, "/admin/v1/database/accept", map[string]any{"reason": "reconciled by the runbook"})
		o.Note("accept: %s", a)
		return !a.IsUnclear() && (a.Status < 300 || a.Status == http.StatusConflict)
	})
	for _, in := range o.Ledger.Requests() {
		answers := in.Answers()
		if answers.End == nil || answers.End.OnChain() || answers.EndAt.Before(backedUp) || ctx.Err() != nil {
			continue
		}
		o.cancelAgain(ctx, answers.ID)
	}
	return ctx.Err()
}

// cancelAgain cancels a transaction that this database has. A lost one is in no queue.
func (o *Operator) cancelAgain(ctx context.Context, txID string) {
	o.until(ctx, "cancelled again: "+txID, func() bool {
		var here bool
		err := o.DB.QueryRow(ctx, `select exists (select from managed_tx where tx_id = $1)`, txID).Scan(&here)
		return err == nil && (!here || !o.Ask(ctx, http.MethodPost, "/api/v1/tx/"+txID+"/cancel", nil).IsUnclear())
	})
}

func (o *Operator) until(ctx context.Context, what string, met func() bool) {
	began := time.Now()
	retry.Await(ctx, pollInterval, met)
	o.Note("operator: %s after %s", what, time.Since(began).Round(time.Millisecond))
}

// lostRequests returns the request and the transaction hash of each nonce from lowest on and
// below count whose transaction this database does not have. The unique value identifies the
// request; a nonce of no request gets "none".
func (o *Operator) lostRequests(ctx context.Context, s txmanager.Submitter, lowest, count uint64) (lost, hashes map[uint64]string) {
	byValue, sent := o.requestsByValue(ctx, s), o.sent(ctx, s, lowest, count)
	// The chain was read first: bytes are stored before they are sent.
	stored := rows.All(ctx, o.DB, pgx.RowTo[string], `select tx_hash from tx_version where submitter = $1`, s)
	lost, hashes = make(map[uint64]string), make(map[uint64]string)
	for _, tx := range sent {
		if hash := tx.Hash().Hex(); !slices.Contains(stored, hash) {
			lost[tx.Nonce()] = cmp.Or(byValue[tx.Value().String()], txmanager.NoRequest)
			hashes[tx.Nonce()] = hash
		}
	}
	return lost, hashes
}

// requestsByValue returns the ids of the submitter's requests that the operator knows of. Half of
// the lost ones are unknown to it: their callers post them again.
func (o *Operator) requestsByValue(ctx context.Context, s txmanager.Submitter) map[string]string {
	here := rows.All(ctx, o.DB, pgx.RowTo[string], `select request_id from managed_tx where submitter = $1`, s)
	byValue := make(map[string]string)
	for _, in := range o.Ledger.Requests() {
		if in.Submitter != s {
			continue
		}
		answers := in.Answers()
		if slices.Contains(here, in.RequestID) || answers.End != nil || answers.Done || o.Source.IntN(2) != 0 {
			byValue[in.ValueWei.String()] = in.RequestID
		}
	}
	return byValue
}

// The operator's acts after a restore beside releases, as they are counted and printed.
const (
	Matched    = "a foreign transaction matched with a request"
	WrittenOff = "a foreign transaction written off"
)

// decideHeld cancels held requests of the copy whose callers have a final answer without an
// effect: no caller posts them again.
func (o *Operator) decideHeld(ctx context.Context) {
	var txID, requestID string
	var s txmanager.Submitter
	held := make(map[[2]string]string)
	rows.Each(ctx, o.DB, []any{&txID, &s, &requestID}, func() { held[[2]string{string(s), requestID}] = txID },
		`select tx_id::text, submitter, request_id from managed_tx where queued and held and held_for is null`)
	for _, in := range o.Ledger.Requests() {
		if txID, ok := held[[2]string{string(in.Submitter), in.RequestID}]; ok && in.Answers().End != nil && !in.Answers().End.OnChain() {
			o.Ask(ctx, http.MethodPost, "/api/v1/tx/"+txID+"/cancel", nil) // one that fails is tried again
		}
	}
}

// decideForeign matches each foreign transaction with the request that is held for it: each
// request of the run has a unique value. Transactions of the foreign signer, and placeholders
// of a lost database, belong to no request.
func (o *Operator) decideForeign(ctx context.Context) {
	for _, s := range o.Stack.Submitters() {
		for _, f := range o.foreign(ctx, s) {
			if txID := cmp.Or(f.TxID, o.openHandlerRequest(s, f.ValueWei)); txID != "" {
				o.match(ctx, s, f.Nonce, txID, "no other request does this")
			} else if isPlaceholder(s, f) || o.signedByForeignSigner(s, f.TxHash) {
				o.writeOff(ctx, s, f.Nonce, "it was no request")
			} else if txID := o.repostLost(ctx, s, f.ValueWei); txID != "" {
				o.match(ctx, s, f.Nonce, txID, "its match was lost with its database")
			}
		}
	}
}

// foreign lists the submitter's foreign transactions that are not decided; none if the call fails.
func (o *Operator) foreign(ctx context.Context, s txmanager.Submitter) []product.OpenForeign {
	var list struct{ Foreign []product.OpenForeign }
	_, _ = o.Read(ctx, "/admin/v1/submitters/"+string(s)+"/foreign", &list)
	return list.Foreign
}

// isPlaceholder reports whether the foreign transaction only consumed its nonce.
func isPlaceholder(s txmanager.Submitter, f product.OpenForeign) bool {
	return f.ValueWei == "0" && strings.EqualFold(f.To, s.Address().String())
}

// openHandlerRequest returns the txId of the open request of this value whose transaction a
// handler makes, or "". No particular nonce is held for such a request.
func (o *Operator) openHandlerRequest(s txmanager.Submitter, valueWei string) string {
	for _, in := range o.Ledger.Requests() {
		answers := in.Answers()
		if in.ByProgram && in.Submitter == s && in.ValueWei.String() == valueWei && answers.End == nil && answers.Generation == o.Ledger.Generation() {
			return answers.ID
		}
	}
	return ""
}

// repostLost posts a request of this value again for its caller, and returns the txId, or "".
// A lost database had matched it and answered its caller, who posts it no more. The new
// database holds it.
func (o *Operator) repostLost(ctx context.Context, s txmanager.Submitter, valueWei string) string {
	for _, in := range o.Ledger.Requests() {
		answers := in.Answers()
		if in.Submitter != s || in.ValueWei.String() != valueWei || !o.Ledger.EndMayBeLost(answers) || !answers.End.OnChain() {
			continue
		}
		a := newCaller(o.Stack, o.Ledger, in, stack.CallerAccount).Submit(ctx)
		o.Note("operator: the caller of request %s got %s, and its record is lost; posted again: %s", in.RequestID, answers.End, a)
		return a.TxID
	}
	return ""
}

func (o *Operator) match(ctx context.Context, s txmanager.Submitter, nonce uint64, txID, reason string) {
	o.decideOne(ctx, s, Matched, "match", map[string]any{"nonce": nonce, "txId": txID, "reason": reason})
}

func (o *Operator) writeOff(ctx context.Context, s txmanager.Submitter, nonce uint64, reason string) {
	o.decideOne(ctx, s, WrittenOff, "write-off", map[string]any{"nonce": nonce, "reason": reason})
}

func (o *Operator) decideOne(ctx context.Context, s txmanager.Submitter, what, path string, body map[string]any) {
	a := o.Ask(ctx, http.MethodPost, "/admin/v1/submitters/"+string(s)+"/foreign/"+path, body)
	if o.Note("operator: %s of %s by %v: %s", path, s, body, a); a.Status == http.StatusOK {
		o.Ledger.Count(what)
	}
}

func (o *Operator) signedByForeignSigner(s txmanager.Submitter, hash string) bool {
	return slices.ContainsFunc(o.Foreign.Of(s), func(u faults.Use) bool { return u.Hash.Hex() == hash })
}

// releaseRequestAfterRestore returns a resync that names the lost requests. The first one of
// each submitter fills its window.
func (o *Operator) releaseRequestAfterRestore(ctx context.Context, p protected, lowest, final uint64) map[string]any {
	lost, hashes := o.lostRequests(ctx, p.Submitter, lowest, final)
	if !o.restoredAt[p.Submitter] && final <= p.NextNonce && len(lost) == 0 {
		return map[string]any{"mode": txmanager.Resume, "reason": "nothing of ours is lost"}
	}
	body := map[string]any{"mode": txmanager.Resync, "count": final, "requests": lost, "hashes": hashes, "reason": "restored; the chain was read"}
	if o.restoredAt[p.Submitter] {
		body["fill"] = p.MaxInFlight
	}
	return body
}
