package txmanager

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// levelCritical is the level of entries that need an operator now: see shared/telemetry.
const levelCritical = slog.Level(12)

// logAttrs are the attributes of every log line of a lease session.
func (t *leaseSession) logAttrs() []any {
	return []any{"submitter", t.state.Lease.Submitter, "nodeId", t.Node, "fencingToken", t.state.Lease.Token}
}

// noteCommit reports a commit to the log and the watcher, before t.state changes.
func (t *leaseSession) noteCommit(ctx context.Context, began time.Time, w Commit, done CommitResult) {
	before := t.loadedByID()
	t.logCommit(ctx, w, done, before)
	t.watchCommit(ctx, began, w, done, before)
}

// logCommit logs each transaction that a commit changed, and a violation of the account.
func (t *leaseSession) logCommit(ctx context.Context, w Commit, done CommitResult, before map[string]Tx) {
	log := t.Log.With(t.logAttrs()...)
	for _, a := range w.Allocations[:done.Allocated] {
		logTx(ctx, log, "nonce allocated", Queued, a.Tx)
	}
	for _, v := range w.Versions {
		logTx(ctx, log, "signed", v.From, v.Tx)
	}
	logReservations(ctx, log, w, done)
	logTransitions(ctx, log, w.Transitions, before)
	switch c := w.Cursor; {
	case c.OpenIncident != nil:
		log.ErrorContext(ctx, "PROTECT: "+c.OpenIncident.Description, "evidence", c.OpenIncident)
	case c.Suspect != nil:
		log.WarnContext(ctx, "seen once, PROTECT if seen again: "+c.Suspect.Description, "evidence", c.Suspect)
	}
}

// logReservations logs reserved nonces and their owners' marks.
func logReservations(ctx context.Context, log *slog.Logger, w Commit, done CommitResult) {
	for _, b := range w.Reservations {
		logTx(ctx, log.With("lockOwner", b.Tx.Reservation.Owner, "timeout", b.For.String()), "nonce reserved", Queued, b.Tx)
	}
	if m := w.Mark; m != nil {
		log.InfoContext(ctx, "reservation marked", "txId", m.TxID, "lockOwner", m.Owner, "mark", m.To, "accepted", done.Marked)
	}
}

// logTransitions logs each transition and claim on a separate line with the state, reason and
// block. Transactions that only get a new check time share one line, because a wide window is
// checked at every block.
func logTransitions(ctx context.Context, log *slog.Logger, moves []Transition, before map[string]Tx) {
	var planned []string
	for _, m := range moves {
		x := before[m.To.ID]
		if m.To.isExecutedTwice() && !x.State.Terminal() {
			log.Log(ctx, levelCritical, "a request was carried out twice: by a foreign transaction, and by its own bytes",
				"txId", m.To.ID, "requestId", m.To.RequestID, "nonce", *m.To.Nonce, "txHash", m.To.Receipt.TxHash.String(), "recordedNonce", m.To.Recorded.Nonce)
		}
		if msg := transitionMessage(x, m.To); msg != "" {
			logTx(ctx, log, msg, m.From, m.To)
			continue
		}
		planned = append(planned, m.To.ID)
	}
	if len(planned) > 0 {
		log.InfoContext(ctx, "next check planned", "txId", strings.Join(planned, " "))
	}
}

// transitionMessage names the change of x, or is "" where only its next check changes.
func transitionMessage(x, to Tx) string {
	switch {
	case x.State != to.State, x.Sub != to.Sub, x.LastError != to.LastError:
		return "transaction moved"
	case x.Receipt != nil && to.Receipt != nil && !isPrefix(x.Confirmations, to.Confirmations):
		return "newFork: list of confirmations replaced"
	case to.State == InFlight && to.SubmitAttempts > x.SubmitAttempts:
		return "handler call claimed"
	case to.isBroadcastClaimed() && (x.LastSubmitAt == nil || !to.LastSubmitAt.Equal(*x.LastSubmitAt)):
		return "broadcast claimed"
	}
	return ""
}

func logTx(ctx context.Context, log *slog.Logger, msg string, from State, t Tx) {
	attrs := []any{"txId", t.ID, "from", from, "state", t.State}
	if t.Sub != "" {
		attrs = append(attrs, "subState", t.Sub)
	}
	if t.Nonce != nil {
		attrs = append(attrs, "nonce", *t.Nonce)
	}
	if len(t.Versions) > 0 {
		attrs = append(attrs, "txHash", t.Hash().String())
	}
	if t.Receipt != nil {
		attrs = append(attrs, "blockNumber", t.Receipt.BlockNumber, "blockHash", t.Receipt.BlockHash.String())
	}
	if t.LastError != "" {
		attrs = append(attrs, "reason", t.LastError)
	}
	level := slog.LevelInfo
	switch {
	case t.State == Stuck || t.State == Protect:
		level = slog.LevelError
	case (t.State == Queued || t.State == InFlight) && t.LastError != "": // later transactions wait too
		level = slog.LevelWarn
	}
	log.Log(ctx, level, msg, attrs...)
}

// logBroadcast logs a node's answer to sent bytes. A first broadcast that was accepted is logged
// by its transition.
func (t *leaseSession) logBroadcast(ctx context.Context, x Tx, res SendResult) {
	if x.State == Submitted && res.Class == SendAccepted {
		return
	}
	level := slog.LevelInfo
	if !res.Acknowledged() {
		level = slog.LevelWarn
	}
	t.Log.With(t.logAttrs()...).Log(ctx, level, "broadcast", "txId", x.ID, "nonce", *x.Nonce,
		"txHash", x.Hash().String(), "result", res.Class.String(), "answer", res.Text)
}
