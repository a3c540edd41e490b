package load

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/faults"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// EndMayBeLost reports whether a restore may have lost the final answer: the database gave it
// after the start of the backup that replaced it.
func (l *Ledger) EndMayBeLost(t Answers) bool {
	return t.End != nil && l.MayBeLost(t.Generation, t.EndAt)
}

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

// databaseReplacedSince reports whether a restore happened since begun. The answer to a
// request that spans a restore proves nothing about either database.
func (c *caller) databaseReplacedSince(begun int) bool { return c.ledger.Generation() != begun }

// repeatAfterRestore posts a request without an end again until the current database has
// given a txId, or has answered that the chain has the request.
func (c *caller) repeatAfterRestore(ctx context.Context) {
	for ctx.Err() == nil {
		answers := c.intent.Answers()
		if answers.End != nil || answers.Generation == c.ledger.Generation() {
			return
		}
		begun := c.ledger.Generation()
		a := c.submitUntilClear(ctx)
		switch {
		case a.isUnclear(), a.code == "SUBMITTER_PROTECTED", c.databaseReplacedSince(begun):
			retry.Pause(ctx, c.intent.pace)
		case a.code == "REQUEST_RECORDED":
			c.recordStoredRequest(ctx, begun)
		case a.status == http.StatusAccepted, a.status == http.StatusOK:
			if answers.TxID != "" && !c.ledger.MayBeLost(answers.Generation, answers.TxAt) && (a.status != http.StatusOK || a.body.TxID != answers.TxID) {
				c.ledger.contradict(c.intent, fmt.Sprintf("accepted before the backup as %s, and repeated after the restore: got %s", answers.TxID, a))
			}
			c.set(func(t *Answers) { t.TxID, t.TxAt, t.Fresh, t.Generation = a.body.TxID, time.Now(), 0, begun })
		default:
			c.ledger.contradict(c.intent, fmt.Sprintf("repeated after a restore: got %s", a))
			c.set(func(t *Answers) { t.Generation = begun })
		}
	}
}

// recordStoredRequest handles REQUEST_RECORDED (the chain has the request, do not post it
// again). The recorded state is the end of the request.
func (c *caller) recordStoredRequest(ctx context.Context, begun int) {
	query := url.Values{"submitter": {string(c.intent.Submitter)}, "requestId": {c.intent.RequestID}}
	a := c.insist(ctx, http.MethodGet, "/api/v1/tx/by-request?"+query.Encode(), nil)
	if a.isUnclear() || c.databaseReplacedSince(begun) {
		return
	}
	before := c.intent.Answers()
	if a.status != http.StatusOK || !a.reached.OnChain() || before.TxID != "" && before.TxID != a.body.TxID && !c.ledger.MayBeLost(before.Generation, before.TxAt) {
		c.ledger.contradict(c.intent, fmt.Sprintf("REQUEST_RECORDED of what was accepted as %q; asked for by its requestId: got %s", before.TxID, a))
	}
	c.set(func(t *Answers) {
		t.Recorded, t.Generation, t.TxID, t.TxAt = true, begun, a.body.TxID, time.Now()
		if t.End == nil {
			t.End, t.EndAt = &a.reached, time.Now()
		}
	})
}

// Successes is the number of successful transactions that the chain must have for this end.
func (e End) Successes() int {
	if e.State == txmanager.Confirmed {
		return 1
	}
	return 0
}

// Reverts is the number of reverted transactions that the chain must have for this end.
func (e End) Reverts() int {
	if e.Sub == txmanager.Reverted {
		return 1
	}
	return 0
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
	o.prepareReleases(ctx, accounts, backedUp)
	return ctx.Err()
}

func (o *Operator) prepareReleases(ctx context.Context, accounts []txmanager.Submitter, backedUp time.Time) {
	o.restoredAt = make(map[txmanager.Submitter]bool)
	for _, s := range accounts {
		o.restoredAt[s] = true
	}
	o.until(ctx, "nothing is pending", func() bool { return o.isNothingPending(ctx, accounts) })
	o.until(ctx, "the copy is accepted", func() bool {
		status, text, err := o.call(ctx, http.MethodPost, "/admin/v1/database/accept", map[string]any{"reason": "reconciled by the runbook"})
		o.Note("accept: %d %s, error: %v", status, text, err)
		return err == nil && (status < 300 || status == http.StatusConflict)
	})
	for _, in := range o.Ledger.Intents() {
		answers := in.Answers()
		if answers.End == nil || answers.End.OnChain() || answers.EndAt.Before(backedUp) || ctx.Err() != nil {
			continue
		}
		o.cancelAgain(ctx, answers.TxID)
	}
}

// cancelAgain cancels a transaction that this database has. A lost one is in no queue.
func (o *Operator) cancelAgain(ctx context.Context, txID string) {
	o.until(ctx, "cancelled again: "+txID, func() bool {
		var here bool
		if err := o.DB.QueryRow(ctx, `select exists (select from managed_tx where tx_id = $1)`, txID).Scan(&here); err != nil {
			return false
		}
		if !here {
			return true
		}
		status, _, err := o.call(ctx, http.MethodPost, "/api/v1/tx/"+txID+"/cancel", nil)
		return err == nil && status < 500
	})
}

func (o *Operator) until(ctx context.Context, what string, met func() bool) {
	began := time.Now()
	for ctx.Err() == nil && !met() {
		retry.Pause(ctx, pollInterval)
	}
	o.Note("operator: %s after %s", what, time.Since(began).Round(time.Millisecond))
}

// isNothingPending reports whether the chain's finalized block has every transaction of the
// accounts.
func (o *Operator) isNothingPending(ctx context.Context, accounts []txmanager.Submitter) bool {
	client, err := ethclient.DialContext(ctx, o.Stack.Chain.URL())
	if err != nil {
		return false
	}
	defer client.Close()
	for _, s := range accounts {
		final, pending, err := counts(ctx, client, common.Address(s.Address()))
		if err != nil || final != pending {
			return false
		}
	}
	return true
}

// lostRequests returns the request and the transaction hash of each nonce from lowest on and
// below count whose transaction this database does not have. The unique value identifies the
// request; a nonce of no request gets "none".
func (o *Operator) lostRequests(ctx context.Context, client *ethclient.Client, s txmanager.Submitter, lowest, count uint64) (lost, hashes map[uint64]string, err error) {
	byValue, here := make(map[string]string), map[string]bool(nil)
	if here, err = o.storedRequests(ctx, s); err != nil {
		return nil, nil, err
	}
	for _, in := range o.Ledger.Intents() {
		if in.Submitter != s {
			continue
		}
		answers := in.Answers()
		if !here[in.RequestID] && answers.End == nil && !answers.Done && o.Source.IntN(2) == 0 {
			continue // the operator does not know of it; its caller posts it again
		}
		byValue[in.ValueWei.String()] = in.RequestID
	}
	lost, hashes = make(map[uint64]string), make(map[uint64]string)
	signer := types.LatestSignerForChainID(new(big.Int).SetUint64(o.Stack.Chain.ChainID()))
	head, err := client.BlockNumber(ctx)
	if err != nil {
		return nil, nil, err
	}
	for n := int64(head); n >= 0 && uint64(len(lost)) < count-min(lowest, count); n-- {
		block, err := client.BlockByNumber(ctx, big.NewInt(n))
		if err != nil {
			return nil, nil, err
		}
		below := false
		for _, tx := range block.Transactions() {
			from, err := types.Sender(signer, tx)
			if err != nil || txmanager.Address(from) != s.Address() {
				continue
			}
			below = below || tx.Nonce() < lowest
			if tx.Nonce() < lowest || tx.Nonce() >= count {
				continue
			}
			var ours bool
			if err := o.DB.QueryRow(ctx, `select exists (select from tx_version where tx_hash = $1)`, tx.Hash().Hex()).Scan(&ours); err != nil {
				return nil, nil, err
			}
			if ours {
				continue
			}
			if lost[tx.Nonce()] = byValue[tx.Value().String()]; lost[tx.Nonce()] == "" {
				lost[tx.Nonce()] = txmanager.NoRequest
			}
			hashes[tx.Nonce()] = tx.Hash().Hex()
		}
		if below {
			break
		}
	}
	return lost, hashes, nil
}

// storedRequests returns the request ids of the submitter that this database has.
func (o *Operator) storedRequests(ctx context.Context, s txmanager.Submitter) (map[string]bool, error) {
	rows, _ := o.DB.Query(ctx, `select request_id from managed_tx where submitter = $1`, s) // the reader has the error
	here, id := make(map[string]bool), ""
	_, err := pgx.ForEachRow(rows, []any{&id}, func() error { here[id] = true; return nil })
	return here, err
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
	rows, _ := o.DB.Query(ctx, `select tx_id::text, submitter, request_id from managed_tx where queued and held and held_for is null`) // the reader has the error
	if _, err := pgx.ForEachRow(rows, []any{&txID, &s, &requestID}, func() error { held[[2]string{string(s), requestID}] = txID; return nil }); err != nil || len(held) == 0 {
		return
	}
	for _, in := range o.Ledger.Intents() {
		if txID, ok := held[[2]string{string(in.Submitter), in.RequestID}]; ok && in.Answers().End != nil && !in.Answers().End.OnChain() {
			_, _, _ = o.call(ctx, http.MethodPost, "/api/v1/tx/"+txID+"/cancel", nil) // one that fails is tried again
		}
	}
}

// decideForeign matches each foreign transaction with the request that is held for it: each
// request of the run has a unique value. Transactions of the foreign signer, and placeholders
// of a lost database, belong to no request.
func (o *Operator) decideForeign(ctx context.Context) {
	for _, s := range o.Stack.Submitters() {
		status, text, err := o.call(ctx, http.MethodGet, "/admin/v1/submitters/"+string(s)+"/foreign", nil)
		var list struct {
			Foreign []struct {
				Nonce                uint64
				TxHash, ValueWei, To string
				TxID                 *string
			}
		}
		if err != nil || status != http.StatusOK || json.Unmarshal(text, &list) != nil {
			continue
		}
		for _, f := range list.Foreign {
			switch {
			case f.TxID != nil:
				o.decideOne(ctx, s, Matched, "match", map[string]any{"nonce": f.Nonce, "txId": f.TxID, "reason": "no other request does this"})
			case o.openHandlerRequest(s, f.ValueWei) != "":
				o.decideOne(ctx, s, Matched, "match", map[string]any{"nonce": f.Nonce, "txId": o.openHandlerRequest(s, f.ValueWei), "reason": "no other request does this"})
			case f.ValueWei == "0" && strings.EqualFold(f.To, s.Address().String()), o.signedByForeignSigner(s, f.TxHash):
				o.decideOne(ctx, s, WrittenOff, "write-off", map[string]any{"nonce": f.Nonce, "reason": "it was no request"})
			default:
				if txID := o.repostLost(ctx, s, f.ValueWei); txID != "" {
					o.decideOne(ctx, s, Matched, "match", map[string]any{"nonce": f.Nonce, "txId": txID, "reason": "its match was lost with its database"})
				}
			}
		}
	}
}

// openHandlerRequest returns the txId of the open request of this value whose transaction a
// handler makes, or "". No particular nonce is held for such a request.
func (o *Operator) openHandlerRequest(s txmanager.Submitter, valueWei string) string {
	for _, in := range o.Ledger.Intents() {
		answers := in.Answers()
		if in.program && in.Submitter == s && in.ValueWei.String() == valueWei && answers.End == nil && answers.Generation == o.Ledger.Generation() {
			return answers.TxID
		}
	}
	return ""
}

// repostLost posts a request of this value again for its caller, and returns the txId, or "".
// A lost database had matched it and answered its caller, who posts it no more. The new
// database holds it.
func (o *Operator) repostLost(ctx context.Context, s txmanager.Submitter, valueWei string) string {
	for _, in := range o.Ledger.Intents() {
		answers := in.Answers()
		if in.Submitter != s || in.ValueWei.String() != valueWei || !o.Ledger.EndMayBeLost(answers) || !answers.End.OnChain() {
			continue
		}
		c := &caller{env: o.Stack, ledger: o.Ledger, intent: in, account: stack.CallerAccount}
		in.mu.Lock()
		submit := in.submit
		in.mu.Unlock()
		if submit == nil {
			submit = func(ctx context.Context) answer { return c.call(ctx, http.MethodPost, "/api/v1/tx", in.Body()) }
		}
		a := submit(ctx)
		o.Note("operator: the caller of request %s got %s, and its record is lost; posted again: %s", in.RequestID, answers.End, a)
		return a.body.TxID
	}
	return ""
}

func (o *Operator) decideOne(ctx context.Context, s txmanager.Submitter, what, path string, body map[string]any) {
	status, text, err := o.call(ctx, http.MethodPost, "/admin/v1/submitters/"+string(s)+"/foreign/"+path, body)
	o.Note("operator: %s of %s by %v: %d %s, error: %v", path, s, body, status, text, err)
	if err == nil && status == http.StatusOK {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.Decisions[what]++
	}
}

// signedByForeignSigner reports whether the foreign signer sent the transaction.
func (o *Operator) signedByForeignSigner(s txmanager.Submitter, hash string) bool {
	return slices.ContainsFunc(o.Foreign.Of(s), func(u faults.Use) bool { return u.Hash.Hex() == hash })
}

// releaseRequestAfterRestore returns a resync that names the lost requests. The first one of
// each submitter fills its window.
func (o *Operator) releaseRequestAfterRestore(ctx context.Context, client *ethclient.Client, p protected, lowest, final uint64) (map[string]any, error) {
	lost, hashes, err := o.lostRequests(ctx, client, p.Submitter, lowest, final)
	if err != nil {
		return nil, err
	}
	if !o.restoredAt[p.Submitter] && final <= p.NextNonce && len(lost) == 0 {
		return map[string]any{"mode": txmanager.Resume, "reason": "nothing of ours is lost"}, nil
	}
	body := map[string]any{"mode": txmanager.Resync, "count": final, "requests": lost, "hashes": hashes, "reason": "restored; the chain was read"}
	if o.restoredAt[p.Submitter] {
		body["fill"] = o.Windows[p.Submitter]
	}
	return body, nil
}

// isStale reports whether the last answer for the intent came from before a restore.
func (c *caller) isStale() bool {
	answers := c.intent.Answers()
	return (answers.TxID != "" || answers.End != nil) && answers.Generation != c.ledger.Generation()
}

// isFinished polls once, after repeating what a restore may have lost.
func (c *caller) isFinished(ctx context.Context) bool {
	c.repeatAfterRestore(ctx)
	return c.intent.Answers().End != nil || c.ask(ctx)
}
