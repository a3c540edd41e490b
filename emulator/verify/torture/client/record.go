package client

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/verify/checkers/promise"
)

// End is a final answer.
type End interface {
	comparable
	fmt.Stringer // STATE, or STATE/REASON
}

// Request is a request with the answers to it, as [Kept] implements it.
type Request[E End] interface {
	Answers() Answers[E]
	Change(change func(*Answers[E]))
}

// Counts counts acts by their names. The zero value is ready, and several goroutines can use it.
type Counts struct {
	mu    sync.Mutex
	times map[string]int
}

// Count counts one act of that name.
func (c *Counts) Count(name string) { c.Add(name, 1) }

// Add counts n acts of that name.
func (c *Counts) Add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.times == nil {
		c.times = make(map[string]int)
	}
	c.times[name] += n
}

// Did returns how often each of the named acts was counted.
func (c *Counts) Did(names []string) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string]int)
	for _, name := range names {
		all[name] = c.times[name]
	}
	return all
}

// Record is the ledger of the clients of a run. R is a request, and E its final answer. A contradiction is an answer that must not be given.
// The zero value is ready, and several goroutines can use it.
type Record[R Request[E], E End] struct {
	Counts

	mu             sync.Mutex
	requests       []R
	contradictions []promise.Violation
	backups        []time.Time // start time of each backup that was restored
}

// Add adds a request.
func (r *Record[R, E]) Add(request R) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, request)
}

// Requests returns all requests.
func (r *Record[R, E]) Requests() []R {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Contradict adds a contradiction, with the answer and the expected one. The checker sets its name.
func (r *Record[R, E]) Contradict(submitter, txID, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.contradictions = append(r.contradictions, promise.Violation{Submitter: submitter, TxID: txID, Detail: detail})
}

// Contradictions returns all contradictions, as found by the checker of that name.
func (r *Record[R, E]) Contradictions(checker string) []promise.Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.contradictions)
	for i := range all {
		all[i].Checker = checker
	}
	return all
}

// Restored records that a copy whose backup began at backedUp has replaced the database. Later answers may be
// lost, so each client without a final answer repeats its request.
func (r *Record[R, E]) Restored(backedUp time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backups = append(r.backups, backedUp)
}

// Generation is the number of restores so far. It identifies the database that gives an answer.
func (r *Record[R, E]) Generation() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.backups)
}

// MayBeLost reports whether a restore may have lost an answer that the database of that generation gave at that
// time. An answer from before the backup must still hold.
func (r *Record[R, E]) MayBeLost(generation int, at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return generation < len(r.backups) && !at.Before(r.backups[generation])
}

// EndMayBeLost reports whether a restore may have lost the final answer.
func (r *Record[R, E]) EndMayBeLost(a Answers[E]) bool {
	return a.End != nil && r.MayBeLost(a.EndGeneration, a.EndAt)
}

// CountUnfinished counts the requests that their clients still follow, of those that are wanted.
func (r *Record[R, E]) CountUnfinished(isWanted func(R) bool) (n int) {
	for _, request := range r.Requests() {
		if isWanted(request) && !request.Answers().Done {
			n++
		}
	}
	return n
}

// Tally counts requests by the answers that their clients got.
type Tally struct {
	Posted, Accepted, Refused int
	Waiting                   int            // for a first answer or for the end
	Ends                      map[string]int // by the name of the state
}

// Tally counts the requests now.
func (r *Record[R, E]) Tally() Tally {
	t := Tally{Ends: make(map[string]int)}
	for _, request := range r.Requests() {
		t.Posted++
		answers := request.Answers()
		if answers.ID != "" {
			t.Accepted++
		}
		switch {
		case answers.ID == "" && answers.Done:
			t.Refused++
		case answers.End == nil:
			t.Waiting++
		default:
			state, _, _ := strings.Cut((*answers.End).String(), "/")
			t.Ends[state]++
		}
	}
	return t
}

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
	Lost     []string // earlier ids, which restores have lost
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
