package nonce

import (
	"context"
	"log/slog"
)

// attrs are what every line about a critical write carries.
func (t *tenure) attrs() []any {
	return []any{"submitter", t.work.Lease.Submitter, "nodeId", t.Node, "fencingToken", t.work.Lease.Token}
}

// logWrite tells of each transaction that a critical write moved, and of the
// account where that was found amiss.
func (t *tenure) logWrite(ctx context.Context, w Write, done Written) {
	log := t.Log.With(t.attrs()...)
	for _, a := range w.Allocate[:done.Allocated] {
		logTx(ctx, log, "nonce allocated", Queued, a.Tx)
	}
	for _, v := range w.Store {
		logTx(ctx, log, "signed", v.From, v.Tx)
	}
	for _, m := range w.Moves {
		if m.From != m.To.State || m.To.LastError != "" {
			logTx(ctx, log, "transaction moved", m.From, m.To)
		}
	}
	switch c := w.Cursor; {
	case c.Protect != nil:
		log.ErrorContext(ctx, "PROTECT: "+c.Protect.What, "evidence", c.Protect)
	case c.Suspect != nil:
		log.WarnContext(ctx, "seen once, PROTECT if seen again: "+c.Suspect.What, "evidence", c.Suspect)
	}
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
	if t.LastError != "" {
		attrs = append(attrs, "reason", t.LastError)
	}
	level := slog.LevelInfo
	if t.State == Stuck || t.State == Protect {
		level = slog.LevelError
	}
	log.Log(ctx, level, msg, attrs...)
}

// logSent tells what a node said to bytes that were sent.
func (t *tenure) logSent(ctx context.Context, x Tx, res SendResult) {
	level := slog.LevelInfo
	if !res.Acknowledged() {
		level = slog.LevelWarn
	}
	t.Log.With(t.attrs()...).Log(ctx, level, "broadcast", "txId", x.ID, "nonce", *x.Nonce,
		"txHash", x.Hash().String(), "result", res.Class.String(), "answer", res.Text)
}
