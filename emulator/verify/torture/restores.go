package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers/rows"
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
func (e *episode) restore(ctx context.Context, n int) (err error) {
	defer steps.Return(&err)
	backedUp := time.Now()
	r, err := e.world.BackUp(ctx, n)
	steps.OK(err, "back up")
	e.folder.event("restore %d: backed up", n)
	var had *storedState
	retry.Await(ctx, 200*time.Millisecond, func() bool { // Postgres can be down
		had, err = readState(ctx, r.Backup)
		return err == nil
	})
	steps.OK(err, "read the backup")
	retry.Pause(ctx, e.length()/time.Duration(4*e.flags.restores))
	steps.OK(e.operator.Restore(ctx, e.managedSubmitters(), backedUp, func() error {
		return e.world.PutBack(ctx, r, n, func() { // the clients learn that the database was replaced
			e.load.Ledger.Restored(backedUp)
			if e.transferRun != nil {
				e.transferRun.Ledger.Restored(backedUp)
			}
		})
	}), "put back")
	e.restores.done, e.restores.backups = append(e.restores.done, r), append(e.restores.backups, had)
	e.out.Printf("%s the database was lost, and its backup of %s before is in its place", e.clock(), time.Since(backedUp).Round(time.Second))
	return nil
}

// namesLostTx reports whether the text names a transaction that only a lost database had.
func (r *restores) namesLostTx(text string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(r.hashes)), func(hash string) bool { return strings.Contains(text, hash) })
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
		wasOpen := slices.ContainsFunc(r.backups, func(m *storedState) bool { return m.open[reqID] })
		return r.transfers[reqID] || wasOpen && !stands
	case "NO_TRANSFER":
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
func (r *restores) read(ctx context.Context) {
	r.storedState = *newStoredState()
	for i, one := range r.done {
		lost, err := readState(ctx, one.Lost)
		steps.OK(err, "read the database that was lost")
		r.addLost(lost, r.backups[i])
	}
}

// addLost adds the state that lost has and its backup kept has not. It takes lost apart.
func (m *storedState) addLost(lost, kept *storedState) {
	maps.DeleteFunc(lost.hashes, func(hash string, _ bool) bool { return kept.hashes[hash] })
	maps.Copy(m.hashes, lost.hashes)
	maps.DeleteFunc(lost.transfers, func(reqID string, _ bool) bool { return kept.transfers[reqID] })
	maps.Copy(m.transfers, lost.transfers)
	maps.DeleteFunc(lost.published, func(key, _ string) bool { return kept.published[key] != "" })
	maps.Copy(m.published, lost.published)
	for reqID, p := range lost.payouts {
		if !kept.transfers[reqID] || p.Withdrawn > kept.payouts[reqID].Withdrawn {
			before := m.payouts[reqID] // of an earlier restore
			p.Withdrawn, p.Refunded = max(p.Withdrawn, before.Withdrawn), max(p.Refunded, before.Refunded)
			m.payouts[reqID] = p
		}
	}
}

// lostEvents reports whether a lost database had events of the transaction.
func (m *storedState) lostEvents(txID string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(m.published)), func(key string) bool { return strings.HasPrefix(key, txID+"-") })
}

func readState(ctx context.Context, url string) (m *storedState, err error) {
	defer steps.Return(&err)
	db := steps.Value(pgx.Connect(ctx, url))
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	m = newStoredState()
	var key, submitter string
	var open bool
	rows.Each(ctx, db, []any{&key}, func() { m.hashes[key] = true }, `select tx_hash from tx_version`)
	rows.Each(ctx, db, []any{&key, &submitter}, func() { m.published[key] = submitter },
		`select concat_ws('-', e.tx_id, e.type, e.sequence), m.submitter from event e join managed_tx m using (tx_id)`)
	rows.Each(ctx, db, []any{&key, &open}, func() { m.transfers[key], m.open[key] = true, open }, `select req_id, open from transfers_tb`)
	for _, p := range payoutRows(ctx, db) {
		m.payouts[p.ReqID] = p
	}
	return m, nil
}

func newStoredState() *storedState {
	return &storedState{make(map[string]bool), make(map[string]string), make(map[string]bool), make(map[string]bool), make(map[string]payout)}
}

// contradictsAcrossRestore describes a difference between a caller's answers from before a restore
// and the chain or the last answer. A restore may lose the record of a request without an effect,
// and may give an end another name. The chain must still have each effect exactly once.
func contradictsAcrossRestore(answers load.Answers, l lastAnswer, m mined) string {
	switch {
	case m != minedFor(*answers.End):
		return fmt.Sprintf("its caller got %s before a restore, and %s", answers.End, m)
	case l.stored && !answers.End.Survives(l.end):
		return fmt.Sprintf("its caller got %s before a restore, and it is %s after it", answers.End, l.end)
	case !l.stored && m.total() > 0:
		return fmt.Sprintf("a restore has lost it, no operator has recorded it again, and %s", m)
	}
	return ""
}
