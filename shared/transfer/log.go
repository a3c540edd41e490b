package transfer

import (
	"context"
	"log/slog"
)

// levelCritical is the level of the same name in telemetry: the result of a payment is unknown,
// and a person must act now.
const levelCritical = slog.Level(12)

// attrs returns the attributes of every log line about a transfer.
func attrs(t Transfer) []any {
	return []any{"reqId", t.ReqID, "transferId", t.ID, "state", t.State.String()}
}

// logMoved logs a transfer's new state, and whether this worker moved it.
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

// logUnknown logs an unknown answer: as a warning while the money can still be at the source, as
// critical once it is in flight. A payout that waits for its chain is logged as critical only
// after the rules' PayoutLimit.
func (c *Coordinator) logUnknown(ctx context.Context, awaits, now Transfer, what string) {
	level, msg := levelCritical, "funds in flight, and the outcome of a call is unknown: it will be asked again"
	switch {
	case awaits.State == SourcePending:
		level, msg = slog.LevelWarn, "the outcome of a withdrawal is unknown: it will be asked again"
	case awaits.Type == FundingToChain && awaits.State == TargetPending && now.InState() < c.rules.PayoutLimit:
		level, msg = slog.LevelInfo, "a payout waits for its chain"
	}
	c.log.Log(ctx, level, msg, append(attrs(awaits),
		"failures", now.Failures, "retryCount", now.RetryCount, "nextAttemptAt", now.NextAttemptAt, "unknown", what)...)
}

func (c *Coordinator) logResolved(ctx context.Context, t Transfer, o RequestedAction, op Op, outcome Outcome) {
	line := append(attrs(t), "op", op, "by", o.By, "why", o.Reason, "verdict", outcome.Verdict.String())
	if outcome.Reason != "" {
		line = append(line, "reason", outcome.Reason)
	}
	c.log.WarnContext(ctx, "resolved by an operator", line...)
}

// String returns the verdict's stored name.
func (v Verdict) String() string {
	switch v {
	case Success:
		return "SUCCESS"
	case Refused:
		return "REFUSED"
	}
	return "UNKNOWN"
}
