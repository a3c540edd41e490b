package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// Broadcast is what the nodes answered to the bytes of a version.
type Broadcast struct {
	Accepted int           `json:"accepted"` // nodes that accepted them
	Answers  []NodesAnswer `json:"answers"`  // of each node; empty if all that answered accepted
}

// NodesAnswer is one node's answer.
type NodesAnswer struct {
	Node   string `json:"node"`
	Answer string `json:"answer"` // the name of a [txmanager.SendClass]
}

// Scan reads the column answers of tx_history: see [answersText].
func (b *Broadcast) Scan(column any) error {
	text, ok := column.(string)
	if !ok {
		return fmt.Errorf("answers of nodes: got %T, want a text", column)
	}
	*b = Broadcast{Answers: []NodesAnswer{}}
	if n, err := strconv.Atoi(text); err == nil {
		b.Accepted = n
		return nil
	}
	if err := json.Unmarshal([]byte(text), &b.Answers); err != nil {
		return fmt.Errorf("answers of nodes: %w", err)
	}
	for _, a := range b.Answers {
		if a.Answer == txmanager.SendAccepted.String() {
			b.Accepted++
		}
	}
	return nil
}

// answersText is what the history keeps of the nodes' answers to a broadcast: their number if all accepted, which
// takes two bytes, otherwise a JSON list.
func answersText(all []txmanager.NodeAnswer) string {
	if len(all) == 0 {
		return ""
	}
	if !slices.ContainsFunc(all, func(a txmanager.NodeAnswer) bool { return a.Class != txmanager.SendAccepted }) {
		return strconv.Itoa(len(all))
	}
	text, _ := json.Marshal(all) // texts alone: cannot fail
	return string(text)
}

// saidByNodes is a JSON object with what the history keeps of the nodes, by tx_id; "" if that is nothing.
func saidByNodes(moves []fenced[txmanager.Transition]) string {
	type said struct {
		Node    string `json:"node,omitempty"`
		Answers string `json:"answers,omitempty"`
	}
	all := make(map[string]said, len(moves))
	for _, m := range moves {
		if t := m.part; t.Node != "" || len(t.Answers) > 0 {
			all[t.To.ID] = said{t.Node, answersText(t.Answers)}
		}
	}
	if len(all) == 0 {
		return ""
	}
	text, _ := json.Marshal(all) // texts alone: cannot fail
	return string(text)
}
