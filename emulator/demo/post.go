package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/nonce"
)

// posted is one intent and what became of it.
type posted struct {
	Intent
	txID     string
	state    nonce.State
	subState string
	hash     string
}

// atOnce is how many requests the demo has under way.
const atOnce = 16

// postAll posts every intent; each submitter's in the order of the file, the
// submitters side by side. A request that got no answer is posted again: that
// is what the requestId is for.
func postAll(ctx context.Context, s *stack.Stack, intents []Intent) ([]*posted, error) {
	all := make([]*posted, len(intents))
	bySubmitter := make(map[nonce.Submitter][]*posted)
	for i, in := range intents {
		all[i] = &posted{Intent: in}
		bySubmitter[in.account] = append(bySubmitter[in.account], all[i])
	}
	var wg sync.WaitGroup
	failures := make(chan error, len(bySubmitter))
	for _, list := range bySubmitter {
		wg.Go(func() {
			for _, p := range list {
				if err := post(ctx, s, p); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(failures)
	return all, <-failures
}

func post(ctx context.Context, s *stack.Stack, p *posted) error {
	for try := 1; ; try++ {
		status, answer, err := s.Call(ctx, stack.CallerAccount, http.MethodPost, "/api/v1/tx", p.Intent)
		var body struct{ TxID string }
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && status < 300:
			if err := json.Unmarshal(answer, &body); err != nil {
				return fmt.Errorf("create %s: %w", p.RequestID, err)
			}
			p.txID = body.TxID
			return nil
		case err == nil && status < 500 && status != http.StatusTooManyRequests, try == 20:
			return fmt.Errorf("create %s: status %d: %s (%v)", p.RequestID, status, answer, err)
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// refresh asks the API for the state of every intent that is not final yet, and
// returns how many are. A question without an answer is asked again next time.
func refresh(ctx context.Context, s *stack.Stack, all []*posted) (final int) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, p := range all {
		if p.state.Final() {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			p.ask(ctx, s)
		})
	}
	wg.Wait()
	for _, p := range all {
		if p.state.Final() {
			final++
		}
	}
	return final
}

func (p *posted) ask(ctx context.Context, s *stack.Stack) {
	status, answer, err := s.Call(ctx, stack.CallerAccount, http.MethodGet, "/api/v1/tx/"+p.txID, nil)
	if err != nil || status != http.StatusOK {
		return
	}
	var body struct {
		State            nonce.State
		SubState, TxHash *string
	}
	if json.Unmarshal(answer, &body) != nil {
		return
	}
	p.state = body.State
	if body.SubState != nil {
		p.subState = *body.SubState
	}
	if body.TxHash != nil {
		p.hash = *body.TxHash
	}
}
