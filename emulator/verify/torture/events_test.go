package main

import (
	"fmt"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A missing event, an event after the final one, and a wrong final event are found. Correct
// events pass.
func TestWrongEventsAreFound(t *testing.T) {
	t.Parallel()
	const final, more = `{"final": true}`, `{"final": false}`
	for name, c := range map[string]struct {
		state                txmanager.State
		counted, n, sequence int
		kind, data           string
		wrong                bool
	}{
		"the first":              {txmanager.Confirmed, 5, 1, 1, "TxAccepted", "{}", false},
		"the end":                {txmanager.Confirmed, 5, 5, 5, "TxConfirmed", final, false},
		"failed":                 {txmanager.Failed, 2, 2, 2, "TxFailed", "{}", false},
		"a hole":                 {txmanager.Confirmed, 5, 3, 4, "TxConfirmed", more, true},
		"none":                   {txmanager.Queued, 1, 1, 0, "", "{}", true},
		"before the end":         {txmanager.Confirmed, 5, 4, 4, "TxConfirmed", final, true},
		"no end":                 {txmanager.Confirmed, 5, 5, 5, "TxConfirmed", more, true},
		"another end":            {txmanager.Failed, 5, 5, 5, "TxConfirmed", final, true},
		"confirmed, told failed": {txmanager.Confirmed, 5, 5, 5, "TxFailed", "{}", true},
		"not ended, told so":     {txmanager.Tracking, 5, 5, 5, "TxConfirmed", final, true},
		"no data":                {txmanager.Tracking, 5, 4, 4, "TxSubmitted", "", true},
	} {
		if got := eventProblem(c.state, c.counted, c.n, c.sequence, c.kind, c.data); (got != "") != c.wrong {
			t.Errorf("%s: got %q, want it wrong: %t", name, got, c.wrong)
		}
	}
}

// The events of a transaction are published in their order. An event that comes before an earlier one is found, also
// if both come again later in their order. So is one that is not stored, one under another account, and one that is
// not published.
func TestWrongPublicationsAreFound(t *testing.T) {
	t.Parallel()
	const payer, other = "eip155:1:0xaa", "eip155:1:0xbb"
	one := func(submitter string, sequence int) []string {
		return []string{submitter, fmt.Sprintf(`{"txId": "a", "type": "TxTold", "submitter": %q, "sequence": %d}`, submitter, sequence)}
	}
	first, second, third := one(payer, 1), one(payer, 2), one(payer, 3)
	for name, c := range map[string]struct {
		published [][]string // the ordering key and the message
		want      string     // "": nothing is found
	}{
		"in order":            {[][]string{first, second}, ""},
		"repeated":            {[][]string{first, first, second, first}, ""},
		"out of order":        {[][]string{second, first, first, second}, "TxTold 2 was published after 0"},
		"not stored":          {[][]string{first, second, third}, "TxTold 3 was published, and is not stored"},
		"under another":       {[][]string{first, one(other, 2)}, "belongs to " + payer},
		"with another key":    {[][]string{first, {other, second[1]}}, "was published under " + other},
		"one is missing":      {[][]string{first}, "a-TxTold-2 was not published"},
		"a message of no use": {[][]string{first, second, {payer, "{"}}, "a message of the topic"},
	} {
		topic := pstest.NewServer()
		if _, err := topic.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: stack.EventsTopic}); err != nil {
			t.Fatal(err)
		}
		for _, m := range c.published {
			topic.PublishOrdered(stack.EventsTopic, []byte(m[1]), nil, m[0])
		}
		found := check{Name: "events-told"}
		(&episode{env: &stack.Stack{PubSub: topic}}).checkPublished(map[string]string{"a-TxTold-1": payer, "a-TxTold-2": payer}, &found)
		wantFound(t, name, found.Violations, c.want)
		topic.Close()
	}
}
