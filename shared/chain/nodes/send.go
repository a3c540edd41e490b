package nodes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// Send implements [txmanager.ChainConnector]. It sends the bytes to every healthy or lagging node at once.
// Once one of them has accepted all, the others have [grace] to answer. If not all bytes were accepted,
// the excluded nodes get them too: their acceptance counts, their refusal does not. If all others have
// refused, they have only [refusedGrace].
func (c *Connector) Send(ctx context.Context, raws [][]byte) []txmanager.SendResult {
	first, rest := c.targets()
	results := merge(sendTo(ctx, first, raws), len(raws))
	if len(rest) == 0 || allTaken(results) || ctx.Err() != nil {
		return results
	}
	if !slices.ContainsFunc(results, func(r txmanager.SendResult) bool { return r.Class == txmanager.SendUnknown }) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, refusedGrace)
		defer cancel()
	}
	more := merge(sendTo(ctx, rest, raws), len(raws))
	for i, r := range more {
		all := slices.Concat(results[i].Answers, r.Answers)
		if r.Acknowledged() && !results[i].Acknowledged() {
			results[i] = r
		}
		results[i].Answers = all
	}
	return results
}

// refusedGrace is how long excluded nodes have to accept bytes that all others refuse.
const refusedGrace = time.Second

// targets returns the nodes that get the bytes first, and those that get them if that was not enough.
// Without a healthy or lagging node, all nodes are in first.
func (c *Connector) targets() (first, rest []*node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		if n.healthy() || n.out == Lags {
			first = append(first, n)
		} else if n.out != WrongChain {
			rest = append(rest, n)
		}
	}
	if len(first) == 0 {
		return slices.Clone(c.nodes), nil
	}
	return first, rest
}

// sendTo sends to all nodes at once and returns their answers, none later than [grace] after one node
// has accepted all bytes. It waits no longer than ctx.
func sendTo(ctx context.Context, to []*node, raws [][]byte) (all [][]txmanager.SendResult) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan []txmanager.SendResult, len(to))
	var sending sync.WaitGroup
	for _, n := range to {
		sending.Go(func() { answers <- n.Send(ctx, raws) })
	}
	defer sending.Wait()
	var enough <-chan time.Time
	for range to {
		select {
		case r := <-answers:
			if all = append(all, r); enough == nil && allTaken(merge(all, len(raws))) {
				enough = time.After(grace)
			}
		case <-enough:
			cancel()
			return all
		}
	}
	return all
}

func allTaken(results []txmanager.SendResult) bool {
	return !slices.ContainsFunc(results, func(r txmanager.SendResult) bool { return !r.Acknowledged() })
}

// merge returns one result for each transaction from the answers of all nodes.
func merge(all [][]txmanager.SendResult, n int) []txmanager.SendResult {
	merged := make([]txmanager.SendResult, n)
	for i := range merged {
		said, answers := make([]txmanager.SendResult, len(all)), make([]txmanager.NodeAnswer, len(all))
		for j, results := range all {
			said[j] = results[i]
			answers[j] = txmanager.NodeAnswer{Node: results[i].Node, Class: results[i].Class}
		}
		merged[i] = mergeOne(said)
		merged[i].Answers = answers
	}
	return merged
}

// mergeOne combines several nodes' answers about one transaction: any *ok* is ok, one class of refusal
// by all is that refusal, and everything else is unknown.
func mergeOne(said []txmanager.SendResult) txmanager.SendResult {
	for _, class := range []txmanager.SendClass{txmanager.SendAccepted, txmanager.SendAlreadyKnown} {
		if i := slices.IndexFunc(said, func(r txmanager.SendResult) bool { return r.Class == class }); i >= 0 {
			return said[i]
		}
	}
	if len(said) == 0 {
		return txmanager.SendResult{Class: txmanager.SendUnknown, Node: "none", Text: "no node answered"}
	}
	if !slices.ContainsFunc(said, func(r txmanager.SendResult) bool { return r.Class != said[0].Class }) {
		return said[0]
	}
	names, texts := make([]string, len(said)), make([]string, len(said))
	for i, r := range said {
		names[i], texts[i] = r.Node, fmt.Sprintf("%s: %s: %s", r.Node, r.Class, cut(r.Text, maxText))
	}
	return txmanager.SendResult{Class: txmanager.SendUnknown, Node: strings.Join(names, ", "), Text: strings.Join(texts, "; ")}
}

// maxText bounds each node's text in a combined result, in bytes.
const maxText = 80

func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
