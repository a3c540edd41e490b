package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/verify/torture/faults"
	"github.com/fencepost/fencepost/emulator/verify/torture/load"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
)

// restores is the state of the databases that were lost in the run, without their backups'
// state.
type restores struct {
	done    []*faults.Restore
	backups []*storedState // state of each backup when it was made
	storedState
}

// storedState is the state of one database that the checks use.
type storedState struct {
	hashes    map[string]bool   // of every version
	published map[string]string // submitters of the events by key
	txs       map[string]bool   // the transactions of these events

	transfers map[string]bool   // req_ids
	open      map[string]bool   // the transfers that are not terminal
	payouts   map[string]payout // by req_id; of lost databases also those withdrawn after the backup
}

// restoreAll loses the database as often as the flag says, evenly over the run, each time some
// seconds after a backup.
func (e *episode) restoreAll(ctx context.Context) {
	each := e.length() / time.Duration(max(e.flags.restores, 1))
	for n := range e.flags.restores {
		began := time.Now()
		retry.Pause(ctx, each/4)
		if err := e.restore(ctx, n); err != nil {
			e.folder.event("restore %d: %v", n, err)
			e.out.Printf("%s restore %d did not happen: %v", e.clock(), n, err)
			return
		}
		retry.Pause(ctx, time.Until(began.Add(each)))
	}
}

// restore follows docs/runbooks/restore.md. Callers and operators do their part once they know of
// the restore.
func (e *episode) restore(ctx context.Context, n int) error {
	backedUp := time.Now()
	r, err := e.world.BackUp(ctx, n)
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	e.folder.event("restore %d: backed up", n)
	had, err := readState(ctx, r.Backup)
	for ; err != nil && ctx.Err() == nil; had, err = readState(ctx, r.Backup) { // Postgres can be down
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
	e.out.Printf("%s the database was lost, and its backup of %s before is in its place", e.clock(), time.Since(backedUp).Round(time.Second))
	return nil
}

// replaced notifies the clients that the database was replaced.
func (e *episode) replaced(backedUp time.Time) {
	e.load.Ledger.Restored(backedUp)
	if e.transferRun != nil {
		e.transferRun.Ledger.Restored(backedUp)
	}
}

// namesLostTx reports whether the text names a transaction that only a lost database had.
func (r *restores) namesLostTx(text string) bool {
	for hash := range r.hashes {
		if strings.Contains(text, hash) {
			return true
		}
	}
	return false
}

// isExplained reports whether a lost database explains a finding of a check of conservation. The
// core can have a line of a transfer whose row was lost. The payer can have a transaction that
// only a lost database had, or one for a payout that the copy refused. The check
// of payouts in [afterRestores] includes the amount of such a payout.
//
// The core can be ahead of a transfer that is open in the copy. A check can find that until the
// copy has caught up.
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
	case "PAYMENT_DIFFERS": // paid by a lost database, and refused by Funding in the copy
		p := r.payouts[reqID]
		return p.Withdrawn > 0 && p.Refunded == 0 && r.namesLostTx(detail) && strings.Contains(detail, "no Payment: it is FAILED")
	}
	return false
}

// read reads what the lost databases had stored and their backups had not.
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

// addLost adds the state that lost has and its backup kept has not.
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

func txOfEvent(key string) string { return key[:len(uuid.Nil.String())] }

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

// contradictsAcrossRestore describes a difference between a caller's answers from before a restore
// and the chain or the last answer. A restore may lose the record of a request without an effect,
// and may give an end another name. The chain must still have each effect exactly once.
func contradictsAcrossRestore(answers load.Answers, l lastAnswer, m mined) string {
	switch {
	case m != mined{answers.End.Successes(), answers.End.Reverts()}:
		return fmt.Sprintf("its caller got %s before a restore, and %s", answers.End, m)
	case l.stored && !answers.End.Survives(l.end):
		return fmt.Sprintf("its caller got %s before a restore, and it is %s after it", answers.End, l.end)
	case !l.stored && m.total() > 0:
		return fmt.Sprintf("a restore has lost it, no operator has recorded it again, and %s", m)
	}
	return ""
}
