package transfer

import (
	"context"
	"log/slog"
)

// levelCritical is telemetry's: money is in doubt, a person must look now.
const levelCritical = slog.Level(12)

// attrs are what every line about a transfer carries.
func attrs(t Transfer) []any {
	return []any{"reqId", t.ReqID, "transferId", t.ID, "state", t.State.String()}
}

func (c *Coordinator) logCreated(ctx context.Context, t Transfer) {
	c.log.InfoContext(ctx, "transfer accepted", append(attrs(t),
		"from", t.Type.Source(), "to", t.Type.Target(), "asset", t.Asset, "amount", t.Amount())...)
}

// logMoved tells where a transfer went, and whether this worker moved it.
func (c *Coordinator) logMoved(ctx context.Context, from, t Transfer, own bool) {
	line, msg := append(attrs(t), "was", from.State.String()), "transfer moved"
	if t.Reason != "" {
		line = append(line, "reason", t.Reason)
	}
	if !own {
		msg = "transfer moved by another worker"
	}
	c.log.InfoContext(ctx, msg, line...)
}

// logUnknown tells that nobody knows what became of a call: a warning while the
// money may still be at the source, critical once it is in flight. That a payout
// waits for its chain is no news until it has waited for too long.
func (c *Coordinator) logUnknown(ctx context.Context, asked, now Transfer, what string) {
	level, msg := levelCritical, "funds in flight, and the outcome of a call is unknown: it will be asked again"
	switch {
	case asked.State == SourcePending:
		level, msg = slog.LevelWarn, "the outcome of a withdrawal is unknown: it will be asked again"
	case asked.Type == FundingToChain && asked.State == TargetPending && now.InState() < c.rules.PayoutLimit:
		level, msg = slog.LevelInfo, "a payout waits for its chain"
	}
	c.log.Log(ctx, level, msg, append(attrs(asked),
		"failures", now.Failures, "retryCount", now.RetryCount, "nextAttemptAt", now.NextAttemptAt, "unknown", what)...)
}

func (c *Coordinator) logResolved(ctx context.Context, t Transfer, o Order, op Op, outcome Outcome) {
	line := append(attrs(t), "op", op, "by", o.By, "why", o.Reason, "verdict", outcome.Verdict.String())
	if outcome.Reason != "" {
		line = append(line, "reason", outcome.Reason)
	}
	c.log.WarnContext(ctx, "resolved by an operator", line...)
}

// String is the verdict's name, as it is stored.
func (v Verdict) String() string {
	switch v {
	case Success:
		return "SUCCESS"
	case Refused:
		return "REFUSED"
	}
	return "UNKNOWN"
}
