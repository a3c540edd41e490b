package queues

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// overview is the page Overview.
type overview struct {
	client.Overview
	Light        light
	Items        part[list[client.AttentionItem]]
	Conservation part[client.Conservation]
	Chains       part[[]client.Chain]

	Counts   map[string]int // of what needs a person, by kind; see [overview.Card]
	Waits    int            // below the limits of their causes
	Excluded []badNode
}

// light is the traffic light.
type light struct {
	Tone string // ok, warn or bad
	Word string
	Text string
}

// card shows how many things of one kind need a person.
type card struct {
	Kind, Name, Text string
	Count            int
	Tone             string // if there are any
}

// Card returns the card of a kind.
func (o overview) Card(kind, name, text string) card {
	return card{kind, name, text, o.Counts[kind], toneOf(kind)}
}

// blockedCause counts the blocked heads that wait for one cause.
type blockedCause struct {
	Cause   string
	Count   int
	Overdue int
	First   client.AttentionItem // the one that has waited longest
}

// badNode is a node that the answering process does not use, or that did not answer it.
type badNode struct {
	ChainID uint64
	client.Node
}

// showOverview draws the page Overview. It makes 4 calls.
func showOverview(ctx context.Context, call page.Call) (page.View, error) {
	var o overview
	all := calls{ctx: ctx}
	require(&all, &o.Overview, call.Admin.GetOverview)
	askRows(&all, &o.Items, call.Admin.ListAttention(ctx), maxRows)
	ask(&all, &o.Conservation, call.Admin.Conservation)
	ask(&all, &o.Chains, call.Admin.ListChains)
	if err := all.wait(); err != nil {
		return page.View{}, err
	}
	o.count()
	slices.SortFunc(o.States, byProgress)
	o.Excluded = badNodes(o.Chains.Value)
	o.Light = o.lightOf()
	return page.View{Title: o.Light.Word, Body: "queues/overview", Data: o, Poll: poll}, nil
}

// progressOrder are the states of open transactions, the last before the end first.
var progressOrder = []client.TxState{client.Protect, client.Stuck, client.Tracking, client.Submitted, client.InFlight, client.Queued}

// byProgress orders counts by their states, so that a row stays where it is.
func byProgress(a, b client.StateCount) int {
	return cmp.Compare(slices.Index(progressOrder, a.State), slices.Index(progressOrder, b.State))
}

func (o *overview) count() {
	o.Counts = make(map[string]int)
	for _, c := range o.Attention {
		if c.Overdue {
			o.Counts[c.Kind] += c.Count
		} else {
			o.Waits += c.Count
		}
	}
}

// softKinds are the kinds of attention that turn the light yellow. Each other kind turns it red.
var softKinds = []string{"MOVE", "HELD", "ENDPOINT", "PAUSED", "PROPOSAL"}

// toneOf is the tone of the light while something of the kind needs a person.
func toneOf(kind string) string {
	if slices.Contains(softKinds, kind) {
		return "warn"
	}
	return "bad"
}

// lightOf is red while something stands still or is wrong until a person acts, and yellow while a person should check
// something, also what looks for faults itself.
func (o *overview) lightOf() light {
	var red, yellow int
	for kind, n := range o.Counts {
		if toneOf(kind) == "warn" {
			yellow += n
		} else {
			red += n
		}
	}
	switch {
	case red > 0:
		return light{"bad", "Act now", counted(red, "thing stands still or is wrong until a person acts.", "things stand still or are wrong until a person acts.")}
	case yellow > 0:
		return light{"warn", "Look", counted(yellow, "thing should be looked at.", "things should be looked at.")}
	case len(o.Excluded) > 0:
		return light{"warn", "Look", counted(len(o.Excluded), "node does not answer well.", "nodes do not answer well.")}
	case o.Chains.Err != nil, o.Items.Err != nil, o.Conservation.Err != nil && !o.Conservation.Missing():
		return light{"warn", "Look", "A part of this page got no answer."}
	}
	if text := o.unwatched(); text != "" {
		return light{"warn", "Look", text}
	}
	return light{"ok", "All clear", "Nothing needs a person."}
}

// How late what looks for faults may be.
const (
	sweepLate = 5 * time.Minute  // it runs and counts each minute
	checkLate = 40 * time.Minute // it runs each minute, and a full one has half an hour
)

// unwatched names the check that does not run now, so that its faults would not be shown; "": all run.
func (o *overview) unwatched() string {
	check := o.Conservation.Value.LastCheck
	switch {
	case o.RatesUpTo == nil:
		return "No minute was counted in the last hour: the sweep does not run, or has begun just now."
	case o.At.Sub(*o.RatesUpTo) > sweepLate:
		return fmt.Sprintf("The sweep has counted no minute for %d minutes: it does not run.", int(o.At.Sub(*o.RatesUpTo).Minutes()))
	case o.Conservation.Missing():
		return ""
	case check == nil:
		return "No check of conservation has come to its end yet."
	case o.At.Sub(check.At) > checkLate:
		return fmt.Sprintf("No check of conservation has come to its end for %d minutes.", int(o.At.Sub(check.At).Minutes()))
	}
	return ""
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}

// Blocked counts the blocked heads by cause, the most overdue first.
func (o overview) Blocked() (out []blockedCause) {
	for _, item := range o.Items.Value.Rows {
		if item.Kind != "BLOCKED" {
			continue
		}
		i := slices.IndexFunc(out, func(b blockedCause) bool { return b.Cause == item.Cause })
		if i < 0 {
			i = len(out)
			out = append(out, blockedCause{Cause: item.Cause, First: item})
		}
		b := &out[i]
		b.Count++
		if item.Overdue {
			b.Overdue++
		}
		if item.Since.Before(b.First.Since) {
			b.First = item
		}
	}
	slices.SortStableFunc(out, func(a, b blockedCause) int {
		return cmp.Or(cmp.Compare(b.Overdue, a.Overdue), cmp.Compare(b.Count, a.Count))
	})
	return out
}

func badNodes(chains []client.Chain) (bad []badNode) {
	for _, c := range chains {
		for _, n := range c.Nodes {
			if n.Excluded != "" || n.Error != "" {
				bad = append(bad, badNode{c.ChainID, n})
			}
		}
	}
	return bad
}
