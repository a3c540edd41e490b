package client

import (
	"fmt"
	"sync"
	"time"
)

// Answers is the content of all answers that a client has got for one request. E is a final answer.
type Answers[E End] struct {
	ID         string    // a txId or a req_id; "": not accepted yet
	IDAt       time.Time // when the first answer with the ID came
	Generation int       // of the database that gave the ID or the end last
	Fresh      int       // answers that reported the request as newly stored
	Refused    bool      // a clear refusal, and never accepted
	Done       bool      // the client polls no more

	End           *E // nil: no final answer yet. Every later one must be the same
	EndAt         time.Time
	EndGeneration int // of the database that gave the end

	Outcome  string   // of an intent's cancel: CANCELLED or EXECUTED; "": none yet
	Recorded bool     // of an intent: answered REQUEST_RECORDED, the chain has it
	Lost     []string // of a transfer: req_ids of the same cid that restores have lost
}

// Kept holds the answers so far. Several goroutines can use it.
type Kept[E End] struct {
	mu      sync.Mutex
	answers Answers[E]
}

// Answers returns a copy of the answers so far.
func (k *Kept[E]) Answers() Answers[E] {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.answers
}

// Change changes the answers.
func (k *Kept[E]) Change(change func(*Answers[E])) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.answers)
}

// RecordEnd records the end that an answer has; nil: none. It returns how the answer contradicts an
// earlier one, or "". A final answer must never change. A request that began after it must get the same.
func (k *Kept[E]) RecordEnd(end *E, a Answer) (contradiction string) {
	var before Answers[E]
	k.Change(func(t *Answers[E]) {
		before = *t
		if end != nil && t.End == nil {
			t.End, t.EndAt, t.EndGeneration, t.Generation = end, time.Now(), a.Generation, max(t.Generation, a.Generation)
		}
	})
	switch {
	case before.End == nil:
	case end != nil && *end != *before.End:
		return fmt.Sprintf("it was %v, and now it is %v", before.End, end)
	case end == nil && a.Begun.After(before.EndAt):
		return fmt.Sprintf("it was %v, and a question put after that got %s", before.End, a.State)
	}
	return ""
}
