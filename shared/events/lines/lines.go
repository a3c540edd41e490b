// Package lines publishes events as lines of the log.
package lines

import (
	"context"
	"log/slog"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// Log writes one line "event" for each event, with all members of its body.
type Log struct{ Log *slog.Logger }

// Publish implements [txmanager.DomainEventPublisher]. It accepts all events.
func (l Log) Publish(ctx context.Context, all []txmanager.Event) (int, error) {
	for _, e := range all {
		l.Log.LogAttrs(ctx, slog.LevelInfo, "event", slog.String("txId", e.TxID), slog.String("submitter", string(e.Submitter)),
			slog.String("type", string(e.Type)), slog.Int("sequence", e.Sequence), slog.Any("event", e.Body))
	}
	return len(all), nil
}
