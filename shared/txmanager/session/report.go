package session

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// LevelCritical is the level of entries that need an operator now: see shared/telemetry.
const LevelCritical = slog.Level(12)

// LogAttrs are the attributes of every log line of a lease session.
func (t *Session) LogAttrs() []any {
	return []any{"submitter", t.State.Lease.Submitter, "nodeId", t.Node, "fencingToken", t.State.Lease.Token}
}

// reportCommit reports each transaction that a commit changed, and a violation of the account, to the log
// and the watcher, before t.State changes. If the store skipped a transition, those out of QUEUED are not
// reported to the watcher: it is unknown which one was skipped.
func (t *Session) reportCommit(ctx context.Context, began time.Time, w txmanager.Commit, done txmanager.CommitResult) {
	before, log := t.loadedByID(), t.Log.With(t.LogAttrs()...)
	var steps []txmanager.Step
	for _, a := range w.Allocations[:done.Allocated] {
		logTx(ctx, log, "nonce allocated", txmanager.Queued, a.Tx)
		steps = append(steps, txmanager.Step{From: before[a.Tx.ID], To: a.Tx})
	}
	for _, v := range w.Versions {
		logTx(ctx, log, "signed", v.From, v.Tx)
		steps = append(steps, txmanager.Step{From: before[v.Tx.ID], To: v.Tx, ExtraWei: v.ExtraWei})
	}
	logReservations(ctx, log, w, done)
	logTransitions(ctx, log, w.Transitions, before)
	for _, m := range w.Transitions {
		if from := before[m.To.ID]; m.From != txmanager.Queued || done.Transitioned >= len(w.Transitions) {
			steps = append(steps, txmanager.Step{From: from, To: m.To, NewFork: isNewFork(from, m.To), Decided: m.Decision})
		}
	}
	switch c := w.Cursor; {
	case c.OpenIncident != nil:
		log.ErrorContext(ctx, "PROTECT: "+c.OpenIncident.Description, "evidence", c.OpenIncident)
	case c.Suspect != nil:
		log.WarnContext(ctx, "seen once, PROTECT if seen again: "+c.Suspect.Description, "evidence", c.Suspect)
	}
	if t.Watcher == nil || len(steps) == 0 {
		return
	}
	for i := range steps {
		steps[i].Age = t.ageOf(steps[i].To)
	}
	t.Watcher.Committed(ctx, began, steps)
}

// logReservations logs reserved nonces and their owners' marks.
func logReservations(ctx context.Context, log *slog.Logger, w txmanager.Commit, done txmanager.CommitResult) {
	for _, b := range w.Reservations {
		logTx(ctx, log.With("lockOwner", b.Tx.Reservation.Owner, "timeout", b.For.String()), "nonce reserved", txmanager.Queued, b.Tx)
	}
	if m := w.Mark; m != nil {
		log.InfoContext(ctx, "reservation marked", "txId", m.TxID, "lockOwner", m.Owner, "mark", m.To, "accepted", done.Marked)
	}
}

// logTransitions logs each transition and claim on a separate line with the state, reason and
// block. Transactions that only get a new check time share one line, because a wide window is
// checked at every block.
func logTransitions(ctx context.Context, log *slog.Logger, moves []txmanager.Transition, before map[string]txmanager.Tx) {
	var planned []string
	for _, m := range moves {
		x := before[m.To.ID]
		if m.To.IsExecutedTwice() && !x.State.Terminal() {
			log.Log(ctx, LevelCritical, "a request was carried out twice: by a foreign transaction, and by its own bytes",
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
func transitionMessage(x, to txmanager.Tx) string {
	switch {
	case x.State != to.State, x.Sub != to.Sub, x.LastError != to.LastError:
		return "transaction changed state"
	case isNewFork(x, to):
		return "newFork: list of confirmations replaced"
	case to.State == txmanager.InFlight && to.SubmitAttempts > x.SubmitAttempts:
		return "handler call claimed"
	case to.IsBroadcastClaimed() && (x.LastSubmitAt == nil || !to.LastSubmitAt.Equal(*x.LastSubmitAt)):
		return "broadcast claimed"
	}
	return ""
}

func logTx(ctx context.Context, log *slog.Logger, msg string, from txmanager.State, t txmanager.Tx) {
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
	if t.Cause != "" {
		attrs = append(attrs, "waitCause", t.Cause)
	}
	level := slog.LevelInfo
	switch {
	case t.State == txmanager.Stuck || t.State == txmanager.Protect:
		level = slog.LevelError
	case (t.State == txmanager.Queued || t.State == txmanager.InFlight) && t.LastError != "": // later transactions wait too
		level = slog.LevelWarn
	}
	log.Log(ctx, level, msg, attrs...)
}

// LogBroadcast logs a node's answer to sent bytes. A first broadcast that was accepted under the
// lease is logged by its transition.
func (t *Session) LogBroadcast(ctx context.Context, x txmanager.Tx, res txmanager.SendResult) {
	if !t.Released && x.State == txmanager.Submitted && res.Class == txmanager.SendAccepted {
		return
	}
	level := slog.LevelInfo
	if !res.Acknowledged() {
		level = slog.LevelWarn
	}
	t.Log.With(t.LogAttrs()...).Log(ctx, level, "broadcast", "txId", x.ID, "nonce", *x.Nonce,
		"txHash", x.Hash().String(), "result", res.Class.String(), "answer", res.Text)
}

// loadedByID are the loaded transactions by txId.
func (t *Session) loadedByID() map[string]txmanager.Tx {
	all := make(map[string]txmanager.Tx, len(t.State.Open)+len(t.State.Queue))
	for _, list := range [][]txmanager.Tx{t.State.Open, t.State.Queue, t.State.Expired} {
		for _, x := range list {
			all[x.ID] = x
		}
	}
	return all
}

// isNewFork reports whether the list of confirming blocks was replaced, or a receipt was removed
// by a reorg. A removal that an operator accepted does not count.
func isNewFork(from, to txmanager.Tx) bool {
	if from.Receipt == nil || to.Receipt == nil {
		return from.Receipt != nil && !to.State.Terminal()
	}
	return !rules.IsPrefix(from.Confirmations, to.Confirmations)
}

// WatchBroadcast reports a node's answer to the bytes of x to the watcher.
func (t *Session) WatchBroadcast(ctx context.Context, began time.Time, x txmanager.Tx, res txmanager.SendResult, again bool) {
	if t.Watcher != nil {
		t.Watcher.Broadcast(ctx, began, txmanager.Broadcast{Tx: x, Result: res, Again: again, Age: t.ageOf(x)})
	}
}

// ageOf is the time since x was accepted, by the database's clock; 0: unknown.
func (t *Session) ageOf(x txmanager.Tx) time.Duration {
	if x.CreatedAt.IsZero() {
		return 0
	}
	return max(0, t.State.DatabaseTime().Sub(x.CreatedAt))
}

// TaskContext is the context for enqueuing the next tasks.
func (t *Session) TaskContext(ctx context.Context) context.Context {
	if t.Watcher == nil {
		return ctx
	}
	return t.Watcher.TaskContext(ctx, t.State.Open, t.State.Queue)
}
