package transactions

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// A wait that depends on time alone has an expected end; any other has none.
func TestExpectedEndOfAWait(t *testing.T) {
	t.Parallel()
	of := rules.Finality{By: txmanager.ByConfirmations, Confirmations: 19, BlockTime: 12 * time.Second} // final after 4 minutes
	now := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	queued := func(position, window int, head txmanager.WaitCause) store.Waiting {
		return store.Waiting{Cause: txmanager.WaitEarlier, Position: &position, Window: window, Head: head, Now: now}
	}
	for name, c := range map[string]struct {
		wait   store.Waiting
		blocks string
		want   time.Duration // 0: none
	}{
		"the head behind a full window":   {wait: queued(1, 1, txmanager.WaitWindowFull), want: 4 * time.Minute},
		"the tenth, one at a time":        {wait: queued(10, 1, txmanager.WaitWindowFull), want: 40 * time.Minute},
		"the tenth, five at a time":       {wait: queued(10, 5, txmanager.WaitWindowFull), want: 8 * time.Minute},
		"the second behind a free head":   {wait: queued(2, 1, txmanager.WaitNext), want: 4 * time.Minute},
		"behind one without money":        {wait: queued(2, 1, txmanager.WaitBalance)},
		"at an unknown position":          {wait: store.Waiting{Position: new(1000), PositionMore: true, Window: 1, Head: txmanager.WaitWindowFull}},
		"in no queue":                     {wait: store.Waiting{Cause: txmanager.WaitInclusion, Window: 1}},
		"included, five blocks are known": {wait: store.Waiting{Cause: txmanager.WaitFinality}, blocks: `[1, 2, 3, 4, 5]`, want: 3 * time.Minute},
	} {
		var want *time.Time
		if c.want > 0 {
			want = new(now.Add(c.want))
		}
		check.Same(t, name, expectedEnd(of, store.Record{UpdatedAt: now, Confirmations: json.RawMessage(c.blocks)}, c.wait), want)
	}
}
