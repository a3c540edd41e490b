package load

import (
	"context"
	"fmt"
	"math/big"
	"net/http"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/shared/nonce"
)

// Restored says that the database is another from here on: what was answered before may
// be lost, and each caller without an end repeats its request.
func (l *Ledger) Restored() { l.generation.Add(1) }

// Generation counts the restores so far.
func (l *Ledger) Generation() int { return int(l.generation.Load()) }

// Survives says whether a request of which its caller was told end before a restore may
// end as now after it: what happened on the chain stays, and what did not happen does
// not happen, but may be called otherwise.
func (e End) Survives(now End) bool {
	if e.happened() {
		return now.State == e.State && (e.State == nonce.Confirmed || now.Sub == e.Sub)
	}
	return now.State == nonce.Failed && now.Sub != nonce.Reverted
}

// happened says that the chain has the request.
func (e End) happened() bool { return e.State == nonce.Confirmed || e.Sub == nonce.Reverted }

// overtaken says that the answer's request was under way while the database was put
// back: it says nothing of either database.
func (c *caller) overtaken(begun int) bool { return c.ledger.Generation() != begun }

// repeatsAfterRestore posts again what has no end, until the database of now has
// answered: it has a txId, or says that the chain has the request.
func (c *caller) repeatsAfterRestore(ctx context.Context) {
	for ctx.Err() == nil {
		told := c.intent.Told()
		if told.End != nil || told.Generation == c.ledger.Generation() {
			return
		}
		begun := c.ledger.Generation()
		a := c.insist(ctx, http.MethodPost, "/api/v1/tx", c.intent.Body())
		switch {
		case a.unclear(), a.code == "SUBMITTER_PROTECTED", c.overtaken(begun):
			pause(ctx, c.intent.pace)
		case a.code == "REQUEST_RECORDED":
			c.recorded(a, begun)
		case a.status == http.StatusAccepted, a.status == http.StatusOK:
			c.set(func(t *Told) { t.TxID, t.Fresh, t.Generation = a.body.TxID, 0, begun })
		default:
			c.ledger.lie(c.intent, fmt.Sprintf("repeated after a restore: got %s", a))
			c.set(func(t *Told) { t.Generation = begun })
		}
	}
}

// recorded takes note of "the chain has it", which is an end.
func (c *caller) recorded(a answer, begun int) {
	c.set(func(t *Told) {
		t.Recorded, t.Generation = true, begun
		if a.body.TxID != "" {
			t.TxID = a.body.TxID
		}
		if t.End == nil {
			t.End, t.EndAt = &End{State: nonce.Confirmed, Sub: "RECORDED"}, time.Now()
		}
	})
}

// Successes is how often the chain has to have carried out what ended so.
func (e End) Successes() int {
	if e.State == nonce.Confirmed {
		return 1
	}
	return 0
}

// Reverts is how often the chain has to have reverted what ended so.
func (e End) Reverts() int {
	if e.Sub == nonce.Reverted {
		return 1
	}
	return 0
}

// Restore has the copy put in the database's place, and does what
// docs/runbooks/restore.md orders before any release: it waits until nothing of any
// account is pending, accepts the copy, and cancels again what callers were told will
// never be done.
func (o *Operator) Restore(ctx context.Context, accounts []nonce.Submitter, backedUp time.Time, putBack func() error) error {
	o.restored.Lock()
	defer o.restored.Unlock()
	if err := putBack(); err != nil {
		return err
	}
	o.reconcile(ctx, accounts, backedUp)
	return ctx.Err()
}

func (o *Operator) reconcile(ctx context.Context, accounts []nonce.Submitter, backedUp time.Time) {
	o.restoredAt = make(map[nonce.Submitter]bool)
	for _, s := range accounts {
		o.restoredAt[s] = true
	}
	o.until(ctx, "nothing is pending", func() bool { return o.quiet(ctx, accounts) })
	o.until(ctx, "the copy is accepted", func() bool {
		status, text, err := o.call(ctx, http.MethodPost, "/admin/v1/authority/accept", map[string]any{"reason": "reconciled by the runbook"})
		o.Note("accept: %d %s, error: %v", status, text, err)
		return err == nil && (status < 300 || status == http.StatusConflict)
	})
	for _, in := range o.Ledger.Intents() {
		told := in.Told()
		if told.End == nil || told.End.happened() || told.EndAt.Before(backedUp) || ctx.Err() != nil {
			continue
		}
		o.cancelAgain(ctx, told.TxID)
	}
}

// cancelAgain cancels what this database has. What it has not was lost, and is in no
// queue.
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
		pause(ctx, rounds)
	}
	o.Note("operator: %s after %s", what, time.Since(began).Round(time.Millisecond))
}

// quiet says that the chain's finalized block has everything that the accounts sent.
func (o *Operator) quiet(ctx context.Context, accounts []nonce.Submitter) bool {
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

// named says of each nonce from lowest on and below count, whose transaction is none of
// this database's, which request of the run's own callers it was, by the value that is
// of no other, or none.
func (o *Operator) named(ctx context.Context, client *ethclient.Client, s nonce.Submitter, lowest, count uint64) (map[uint64]string, error) {
	byValue := make(map[string]string)
	for _, in := range o.Ledger.Intents() {
		if in.Submitter == s {
			byValue[in.ValueWei.String()] = in.RequestID
		}
	}
	lost := make(map[uint64]string)
	signer := types.LatestSignerForChainID(new(big.Int).SetUint64(o.Stack.Chain.ChainID()))
	head, err := client.BlockNumber(ctx)
	if err != nil {
		return nil, err
	}
	for n := int64(head); n >= 0 && uint64(len(lost)) < count-min(lowest, count); n-- {
		block, err := client.BlockByNumber(ctx, big.NewInt(n))
		if err != nil {
			return nil, err
		}
		below := false
		for _, tx := range block.Transactions() {
			from, err := types.Sender(signer, tx)
			if err != nil || nonce.Address(from) != s.Address() {
				continue
			}
			below = below || tx.Nonce() < lowest
			if tx.Nonce() < lowest || tx.Nonce() >= count {
				continue
			}
			var ours bool
			if err := o.DB.QueryRow(ctx, `select exists (select from tx_version where tx_hash = $1)`, tx.Hash().Hex()).Scan(&ours); err != nil {
				return nil, err
			}
			if ours {
				continue
			}
			if lost[tx.Nonce()] = byValue[tx.Value().String()]; lost[tx.Nonce()] == "" {
				lost[tx.Nonce()] = nonce.NoRequest
			}
		}
		if below {
			break
		}
	}
	return lost, nil
}

// wayAfterRestore is the way out of PROTECT once a database was lost: a resync that names
// what the chain has. The first of each submitter fills its window.
func (o *Operator) wayAfterRestore(ctx context.Context, client *ethclient.Client, p protected, lowest, final uint64) (map[string]any, error) {
	lost, err := o.named(ctx, client, p.Submitter, lowest, final)
	if err != nil {
		return nil, err
	}
	if !o.restoredAt[p.Submitter] && final <= p.NextNonce && len(lost) == 0 {
		return map[string]any{"mode": nonce.Resume, "reason": "nothing of ours is lost"}, nil
	}
	body := map[string]any{"mode": nonce.Resync, "count": final, "requests": lost, "reason": "restored; the chain was read"}
	if o.restoredAt[p.Submitter] {
		body["fill"] = max(o.Window, 1)
	}
	return body, nil
}

// stale says that the intent was heard of before a restore.
func (c *caller) stale() bool {
	told := c.intent.Told()
	return (told.TxID != "" || told.End != nil) && told.Generation != c.ledger.Generation()
}

// ended asks, and repeats first what a restore may have lost.
func (c *caller) ended(ctx context.Context) bool {
	c.repeatsAfterRestore(ctx)
	return c.intent.Told().End != nil || c.ask(ctx)
}
