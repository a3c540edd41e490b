package txtest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// Panel is a chain of nodes with fixed observations, by name. The first that is not excluded is
// queried.
type Panel struct {
	txmanager.ChainConnector
	Views  []txmanager.ChainObservation
	Needed int
	Out    []string
	Away   []txmanager.ChainObservation // of excluded nodes that answer again
	Asked  int                          // round trips to other nodes
	Saw    []txmanager.ChainQuery       // what they were asked

	// Consuming gives the transaction that consumed a nonce; nil: no node can tell.
	Consuming func(nonce uint64) (txmanager.ConsumingTx, error)
}

func (p *Panel) Query(_ context.Context, q txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	for _, v := range p.Views {
		if !slices.Contains(p.Out, v.Node) {
			v.OtherNodes = p
			if !q.Account { // whether heads are of its chain
				v.HashesAt = make(map[uint64]txmanager.Hash)
				for _, h := range q.HashesAt {
					v.HashesAt[h] = Block(v.Head.Hash[0], h).Hash
				}
			}
			return v, nil
		}
	}
	return txmanager.ChainObservation{}, errors.New("all are left out")
}

func (p *Panel) Quorum() int { return p.Needed }

func (p *Panel) QueryOthers(_ context.Context, q txmanager.ChainQuery, n int, but ...string) (views []txmanager.ChainObservation) {
	p.Saw = append(p.Saw, q)
	for _, v := range p.Views {
		if len(views) < n && !slices.Contains(but, v.Node) { // excluded nodes count too
			p.Asked++
			views = append(views, v)
		}
	}
	return views
}

func (p *Panel) QueryExcluded(_ context.Context, q txmanager.ChainQuery, but ...string) (views []txmanager.ChainObservation) {
	p.Saw = append(p.Saw, q)
	for _, v := range p.Away {
		if !slices.Contains(but, v.Node) {
			p.Asked++
			views = append(views, v)
		}
	}
	return views
}

func (p *Panel) FindConsumingTx(_ context.Context, _ txmanager.Submitter, nonce uint64) (txmanager.ConsumingTx, error) {
	if p.Consuming != nil {
		return p.Consuming(nonce)
	}
	return txmanager.ConsumingTx{}, txmanager.ErrConsumerUnavailable
}

// ReadBlocks returns that no node has the blocks.
func (p *Panel) ReadBlocks(context.Context, txmanager.BlocksQuery) (txmanager.BlocksRead, error) {
	return txmanager.BlocksRead{}, fmt.Errorf("no blocks: %w", txmanager.ErrConsumerUnavailable)
}

func (p *Panel) ReportOutvoted(_ context.Context, node, _ string) { p.Out = append(p.Out, node) }

func Called(v txmanager.ChainObservation, name string) txmanager.ChainObservation {
	v.Node = name
	return v
}

// OfNodes are observations of nodes n0, n1, …
func OfNodes(views ...txmanager.ChainObservation) (list []txmanager.ChainObservation) {
	for i, v := range views {
		list = append(list, Called(v, "n"+string(rune('0'+i))))
	}
	return list
}
