package demo

import (
	"context"
	"sync"

	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

type posted struct {
	Intent
	txID     string
	state    client.TxState
	subState string
}

const atOnce = 16

// postAll posts every intent: each submitter's in the order of the file, the submitters concurrently. The
// client repeats a request without an answer; the requestId makes this safe.
func postAll(ctx context.Context, c *client.Client, intents []Intent) ([]*posted, error) {
	all := make([]*posted, len(intents))
	for i, in := range intents {
		all[i] = &posted{Intent: in}
	}
	lists := bySubmitter(all)
	var wg sync.WaitGroup
	failures := make(chan error, len(lists))
	for _, list := range lists {
		wg.Go(func() {
			for _, p := range list {
				created, err := c.CreateTx(ctx, client.Intent{Submitter: p.Submitter, RequestID: p.RequestID, Payload: p.Payload})
				if err != nil {
					failures <- err
					return
				}
				p.txID = created.TxID
			}
		})
	}
	wg.Wait()
	close(failures)
	return all, <-failures
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
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, list := range bySubmitter(all) {
		known, open := make(map[string]*posted), false
		for _, p := range list {
			known[p.txID] = p
			open = open || !p.state.Final()
		}
		if !open {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			for tx, err := range c.ListTx(ctx, client.TxQuery{Submitter: list[0].Submitter, PageSize: 500}) {
				if err != nil {
					return
				}
				if p := known[tx.TxID]; p != nil {
					p.state, p.subState = tx.State, tx.SubState
				}
			}
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
