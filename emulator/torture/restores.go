package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/torture/faults"
	"github.com/fencepost/fencepost/emulator/torture/load"
	"github.com/fencepost/fencepost/emulator/torture/retry"
)

// restores is what is known of the databases that were lost in the run, beyond what
// their backups have.
type restores struct {
	done    []*faults.Restore
	backups []*storedState // of each of their backups, as it was made
	storedState
}

// storedState is what a database has stored and told.
type storedState struct {
	hashes    map[string]bool   // of every version
	published map[string]string // the events: by key, the submitter
	txs       map[string]bool   // the transactions that these are of

	transfers map[string]bool   // req_ids
	open      map[string]bool   // of the transfers that have not ended
	payouts   map[string]payout // of the transfers; of lost ones also those that were withdrawn after the backup
}

// restoreAll loses the database as often as it is asked for, evenly over the storm: each
// time some seconds after a backup.
func (e *episode) restoreAll(ctx context.Context) {
	each := e.length() / time.Duration(max(e.flags.restores, 1))
	for n := range e.flags.restores {
		began := time.Now()
		retry.Pause(ctx, each/4)
		if err := e.restore(ctx, n); err != nil {
			e.folder.event("restore %d: %v", n, err)
			fmt.Fprintf(e.out, "%s restore %d did not happen: %v\n", e.clock(), n, err)
			return
		}
		retry.Pause(ctx, time.Until(began.Add(each)))
	}
}

// restore follows docs/runbooks/restore.md. The callers and the operator do their part by
// themselves, once they know of it.
func (e *episode) restore(ctx context.Context, n int) error {
	backedUp := time.Now()
	r, err := e.world.BackUp(ctx, n)
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	e.folder.event("restore %d: backed up", n)
	had, err := readState(ctx, r.Backup)
	for ; err != nil && ctx.Err() == nil; had, err = readState(ctx, r.Backup) { // Postgres may be away
		retry.Pause(ctx, 200*time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("read the backup: %w", err)
	}
	retry.Pause(ctx, e.length()/time.Duration(4*e.flags.restores))
	if err := e.operator.Restore(ctx, e.managedSubmitters(), backedUp, func() error {
		return e.world.PutBack(ctx, r, n, func() { e.replaced(backedUp) })
	}); err != nil {
		return fmt.Errorf("put back: %w", err)
	}
	e.restores.done, e.restores.backups = append(e.restores.done, r), append(e.restores.backups, had)
	fmt.Fprintf(e.out, "%s the database was lost, and its backup of %s before is in its place\n", e.clock(), time.Since(backedUp).Round(time.Second))
	return nil
}

// replaced tells everybody that the database is another from here on.
func (e *episode) replaced(backedUp time.Time) {
	e.load.Ledger.Restored(backedUp)
	if e.transferRun != nil {
		e.transferRun.Ledger.Restored(backedUp)
	}
}

// namesLostTx says that a text names a transaction of a database that was lost.
func (r *restores) namesLostTx(text string) bool {
	for hash := range r.hashes {
		if strings.Contains(text, hash) {
			return true
		}
	}
	return false
}

// isExplained says of what a check of conservation found that a database which was lost is the
// cause: the core has a line of a transfer whose row was lost, or the payer a transaction
// that only a lost database had, which nothing here explains, or a payout that was refused
// here. Whether that payout's money was taken is [afterRestores]'s to say.
//
// What a copy has open may have gone further at the core. Until it has caught up a check
// finds that, and it stands no longer afterwards.
func (r *restores) isExplained(kind, reqID, detail string, stands bool) bool {
	switch kind {
	case "CREDIT_WITHOUT_DEBIT", "CREDIT_AND_REFUND":
		if !stands && slices.ContainsFunc(r.backups, func(m *storedState) bool { return m.open[reqID] }) {
			return true
		}
	}
	switch kind {
	case "NO_TRANSFER", "CREDIT_WITHOUT_DEBIT", "CREDIT_AND_REFUND":
		return r.transfers[reqID]
	case "PAYMENT_WITHOUT_TRANSFER":
		return r.namesLostTx(detail)
	case "PAYMENT_DIFFERS": // it was paid by a lost database, and Funding has refused it in the copy
		p := r.payouts[reqID]
		return p.Withdrawn > 0 && p.Refunded == 0 && r.namesLostTx(detail) && strings.Contains(detail, "no payment: it is FAILED")
	}
	return false
}

// read takes from the databases that were lost what they had signed and told, and what
// their backups had not.
func (r *restores) read(ctx context.Context) error {
	r.storedState = *newStoredState()
	for i, one := range r.done {
		lost, err := readState(ctx, one.Lost)
		if err != nil {
			return fmt.Errorf("read the database that was lost: %w", err)
		}
		r.addLost(lost, r.backups[i])
	}
	return nil
}

// addLost adds what lost has and kept has not.
func (m *storedState) addLost(lost, kept *storedState) {
	for hash := range lost.hashes {
		if !kept.hashes[hash] {
			m.hashes[hash] = true
		}
	}
	for reqID := range lost.transfers {
		if !kept.transfers[reqID] {
			m.transfers[reqID] = true
		}
	}
	for reqID, p := range lost.payouts {
		if !kept.transfers[reqID] || p.Withdrawn > kept.payouts[reqID].Withdrawn {
			before := m.payouts[reqID] // of an earlier restore
			p.Withdrawn, p.Refunded = max(p.Withdrawn, before.Withdrawn), max(p.Refunded, before.Refunded)
			m.payouts[reqID] = p
		}
	}
	for key, submitter := range lost.published {
		if _, also := kept.published[key]; !also {
			m.published[key], m.txs[txOfEvent(key)] = submitter, true
		}
	}
}

// txOfEvent is the transaction of an event's key.
func txOfEvent(key string) string { return key[:len(uuid.Nil.String())] }

// readState reads what a database has stored and told.
func readState(ctx context.Context, url string) (*storedState, error) {
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	m := newStoredState()
	var hash, txID, kind, submitter string
	var sequence int
	rows, _ := db.Query(ctx, `select tx_hash from tx_version`) // the reader has the error
	if _, err := pgx.ForEachRow(rows, []any{&hash}, func() error { m.hashes[hash] = true; return nil }); err != nil {
		return nil, err
	}
	rows, _ = db.Query(ctx, `select e.tx_id::text, e.type, e.sequence, m.submitter from event e join managed_tx m using (tx_id)`)
	_, err = pgx.ForEachRow(rows, []any{&txID, &kind, &sequence, &submitter}, func() error {
		m.published[fmt.Sprintf("%s-%s-%d", txID, kind, sequence)], m.txs[txID] = submitter, true
		return nil
	})
	if err != nil {
		return nil, err
	}
	var reqID string
	var open bool
	rows, _ = db.Query(ctx, `select req_id, open from transfers_tb`)
	if _, err := pgx.ForEachRow(rows, []any{&reqID, &open}, func() error { m.transfers[reqID], m.open[reqID] = true, open; return nil }); err != nil {
		return nil, err
	}
	paid, err := payoutRows(ctx, db)
	for _, p := range paid {
		m.payouts[p.ReqID] = p
	}
	return m, err
}

func newStoredState() *storedState {
	return &storedState{make(map[string]bool), make(map[string]string), make(map[string]bool), make(map[string]bool), make(map[string]bool), make(map[string]payout)}
}

// contradictsAcrossRestore says how the chain, or the last word, is other than a caller was told
// before a restore. What is not promised across one: that a request which was not
// carried out is still on record, that its end has the same name, and that one which was
// carried out shows how the database that was lost had named its end. The chain is
// asked all the same, and has each effect at most once.
func contradictsAcrossRestore(answers load.Answers, l lastAnswer, succeeded, reverted int) string {
	mined := fmt.Sprintf("the chain has it %d times succeeded, %d times reverted", succeeded, reverted)
	switch {
	case succeeded != answers.End.Successes() || reverted != answers.End.Reverts():
		return fmt.Sprintf("its caller was told %s before a restore, and %s", answers.End, mined)
	case l.stored && !answers.End.Survives(l.end):
		return fmt.Sprintf("its caller was told %s before a restore, and it is %s after it", answers.End, l.end)
	case !l.stored && succeeded+reverted > 0:
		return "a restore has lost it, nobody has put it on record again, and " + mined
	}
	return ""
}
