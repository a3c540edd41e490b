package client

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
)

// Habits are a client's behaviour around one request, drawn before it begins.
type Habits struct {
	Copies   int           // of the first request, posted at once
	Conflict bool          // posts another request under the same id
	Invalid  bool          // posts invalid requests first
	Again    bool          // posts the same request once more at the end
	Pace     time.Duration // from the first poll to the second
}

// Acts are the names under which the habits are counted.
type Acts struct{ Repeats, Again, Conflicts string }

// Kind is what differs between the kinds of requests.
type Kind interface {
	Submit(ctx context.Context) Answer                       // posts the request once
	RecordAcceptance(ctx context.Context, a Answer)          // a clear answer to a post
	RecordRepeat(ctx context.Context, a Answer) (clear bool) // a clear answer to a post after a restore; false: post it again
	SubmitConflicting(ctx context.Context) Answer            // posts another request under the same id, once
	CheckConflict(a Answer)                                  // a clear answer to that
	Poll(ctx context.Context) (final bool)                   // asks for the state once
	Contradict(format string, args ...any)
}

// Follower follows one request from its first post to its final answer. R is the request, and E its
// final answer.
type Follower[R Request[E], E End] struct {
	Client
	Habits
	Acts    Acts
	Kind    Kind
	Request R
	Ledger  *Record[R, E]
}

// Follow calls begin, which posts the request. Then it polls until the answer is final, while the
// client does the acts beside.
func (f *Follower[R, E]) Follow(ctx context.Context, begin func(context.Context), beside ...func(context.Context)) {
	defer f.Request.Change(func(t *Answers[E]) { t.Done = true })
	begin(ctx)
	if f.Request.Answers().ID == "" {
		f.Request.Change(func(t *Answers[E]) { t.Refused = ctx.Err() == nil })
		return
	}
	var others sync.WaitGroup
	for _, act := range beside {
		others.Go(func() { act(ctx) })
	}
	if f.Conflict {
		others.Go(func() { f.PostConflicting(ctx) })
	}
	retry.Poll(ctx, f.Pace, func() bool {
		f.repeatAfterRestore(ctx)
		return f.Request.Answers().End != nil || f.Kind.Poll(ctx)
	})
	if f.Again && ctx.Err() == nil && !f.IsStale() {
		f.Ledger.Count(f.Acts.Again)
		f.Post(ctx)
	}
	others.Wait()
	f.Kind.Poll(ctx) // once more: a final answer must not change
}

// PostCopies posts the request several times at once, each copy until it is answered.
func (f *Follower[R, E]) PostCopies(ctx context.Context) {
	if f.Copies > 1 {
		f.Ledger.Count(f.Acts.Repeats)
	}
	Concurrently(f.Copies, func() { f.Post(ctx) })
}

// Post posts the request until the answer is clear. If another copy was answered before a restore,
// the restore may have lost the request: a client with a final answer posts it no more.
func (f *Follower[R, E]) Post(ctx context.Context) {
	begun := f.Generation()
	submit := func() (a Answer) {
		if !f.IsStale() {
			a = f.Kind.Submit(ctx)
		}
		return a
	}
	a := retry.Until(ctx, submit, func(a Answer) bool { return a.IsClear() || f.IsStale() })
	switch {
	case f.Replaced(begun), f.IsStale():
		f.repeatAfterRestore(ctx)
	case a.IsClear():
		f.Kind.RecordAcceptance(ctx, a)
	}
}

// repeatAfterRestore posts a request without an end again until the current database has answered
// it. That database either has the request, or has lost it and stores it anew.
func (f *Follower[R, E]) repeatAfterRestore(ctx context.Context) {
	for ctx.Err() == nil {
		answers, begun := f.Request.Answers(), f.Generation()
		if answers.End != nil || answers.Generation == begun {
			return
		}
		a := retry.Until(ctx, func() Answer { return f.Kind.Submit(ctx) }, Answer.IsClear)
		if a.IsUnclear() || f.Replaced(begun) || !f.Kind.RecordRepeat(ctx, a) {
			retry.Pause(ctx, f.Pace)
		}
	}
}

// PostConflicting posts another request under the same id. It stops at a restore: the request may be
// lost then, and the other one would be new.
func (f *Follower[R, E]) PostConflicting(ctx context.Context) {
	begun := f.Generation()
	if f.IsStale() {
		return
	}
	submit := func() (a Answer) {
		if !f.Replaced(begun) { // during the pause before a repeat
			a = f.Kind.SubmitConflicting(ctx)
		}
		return a
	}
	a := retry.Until(ctx, submit, func(a Answer) bool { return a.IsClear() || f.Replaced(begun) })
	if a.IsUnclear() || f.Replaced(begun) {
		return
	}
	f.Ledger.Count(f.Acts.Conflicts)
	f.Kind.CheckConflict(a)
}

// AskCurrent asks once for what the current database has accepted. An answer that a restore may have
// come before is none; the checks at the end of the run ask again.
func (f *Follower[R, E]) AskCurrent(ctx context.Context, path string) (a Answer, ok bool) {
	begun := f.Generation()
	a = f.Ask(ctx, http.MethodGet, path, nil)
	return a, a.IsClear() && !f.Replaced(begun) && !f.IsStale()
}

// RecordID records the id in an answer, which says whether the request was stored just then. A
// request must keep its first id, and must be stored only once.
func (f *Follower[R, E]) RecordID(id string, fresh bool, a Answer) {
	var first string
	var stored int
	f.Request.Change(func(t *Answers[E]) {
		if t.ID == "" {
			t.ID, t.IDAt, t.Generation = id, time.Now(), a.Generation
		}
		if fresh {
			t.Fresh++
		}
		first, stored = t.ID, t.Fresh
	})
	if id != first || first == "" {
		f.Kind.Contradict("posted again: got id %q, and before %q", id, first)
	}
	if stored > 1 {
		f.Kind.Contradict("%d answers said that it was stored just then: want one, and after it that it is known", stored)
	}
}

// RecordState compares the end in an answer with earlier ones; nil: the answer is not final.
func (f *Follower[R, E]) RecordState(end *E, a Answer) (final bool) {
	if contradiction := f.Request.RecordEnd(end, a); contradiction != "" {
		f.Kind.Contradict("%s", contradiction)
	}
	return end != nil
}

// IsStale reports whether the last answer came from a database that was replaced.
func (f *Follower[R, E]) IsStale() bool {
	a := f.Request.Answers()
	return a.ID != "" && a.Generation != f.Ledger.Generation()
}
