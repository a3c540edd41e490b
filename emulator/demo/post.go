package demo

import (
	"context"
	"slices"
	"sync"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

type posted struct {
	Intent
	txID     string
	state    client.TxState
	subState string
}

// postAll posts every intent: each submitter's in the order of the file, the submitters concurrently. The
// client repeats a request without an answer; the requestId makes this safe.
func postAll(ctx context.Context, c *client.Client, intents []Intent) []*posted {
	all := make([]*posted, len(intents))
	for i, in := range intents {
		all[i] = &posted{Intent: in}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for _, list := range bySubmitter(all) {
		wg.Go(func() {
			for _, p := range list {
				created, err := c.CreateTx(ctx, client.Intent{Submitter: p.Submitter, RequestID: p.RequestID, Payload: p.Payload})
				if err != nil {
					stop(err)
					return
				}
				p.txID = created.TxID
			}
		})
	}
	wg.Wait()
	steps.OK(context.Cause(ctx))
	return all
}

func bySubmitter(all []*posted) map[txmanager.Submitter][]*posted {
	lists := make(map[txmanager.Submitter][]*posted)
	for _, p := range all {
		lists[p.account] = append(lists[p.account], p)
	}
	return lists
}

// refresh lists the unfinished submitters' transactions, and returns how many are final. A list that
// breaks off is read again next time.
func refresh(ctx context.Context, c *client.Client, all []*posted) (final int) {
	known := make(map[string]*posted)
	for _, p := range all {
		known[p.txID] = p
	}
	for _, list := range bySubmitter(all) {
		if !slices.ContainsFunc(list, func(p *posted) bool { return !p.state.Final() }) {
			continue
		}
		for tx, err := range c.ListTx(ctx, client.TxQuery{Submitter: list[0].Submitter, PageSize: 500}) {
			if err != nil {
				break
			}
			if p := known[tx.TxID]; p != nil {
				p.state, p.subState = tx.State, tx.SubState
			}
		}
	}
	for _, p := range all {
		if p.state.Final() {
			final++
		}
	}
	return final
}
