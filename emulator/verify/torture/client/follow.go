package client

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
)

// Habits are a client's behaviour around one request, drawn before it begins.
type Habits struct {
	Copies   int           // of the first request, posted at once
	Conflict bool          // posts another request under the same id
	Invalid  bool          // posts wrong requests first
	Again    bool          // posts the same request once more at the end
	Pace     time.Duration // from the first poll to the second
}

// Acts are the names under which the habits are counted.
type Acts struct{ Repeats, Again, Conflicts string }

// Posts are what the client posts for one request.
type Posts struct {
	Path         string
	Body         map[string]any
	Submit       func(context.Context) Answer // posts the request once; nil: the body, by HTTP
	Conflicting  map[string]any               // another request under the same id
	ConflictCode string                       // of its refusal
	Wrong        []Wrong
}

// Wrong is a request that must be refused.
type Wrong struct {
	Body  map[string]any
	Code  string // of the refusal
	Other string // of another possible one, which is not counted; "": none
	Act   string // the name under which it is counted
}

// Kind is what differs between the kinds of requests.
type Kind interface {
	// RecordPost records a clear answer to a post. It returns false if the client has to post the request again. After
	// a restore a lost database may have stored the request.
	RecordPost(ctx context.Context, a Answer, restored bool) (clear bool)
	Poll(ctx context.Context) (final bool) // asks for the state once
}

// Follower follows one request from its first post to its final answer. R is the request, and E its
// final answer.
type Follower[R Request[E], E End] struct {
	Client
	Habits
	Acts    Acts
	Posts   Posts
	Kind    Kind
	Request R
	Ledger  *Record[R, E]

	Owner, Name string // of the request, in a contradiction
}

// Contradict records a contradiction in the answers about the request.
func (f *Follower[R, E]) Contradict(format string, args ...any) {
	f.Ledger.Contradict(f.Owner, f.Request.Answers().ID, f.Name+": "+fmt.Sprintf(format, args...))
}

// Follow calls begin, which posts the request. Then it polls until the answer is final, while the
// client does the acts beside.
func (f *Follower[R, E]) Follow(ctx context.Context, begin func(context.Context), beside ...func(context.Context)) {
	defer f.Request.Change(func(t *Answers[E]) { t.Done = true })
	if f.Invalid {
		f.postWrong(ctx)
	}
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
		if f.IsStale() {
			f.Post(ctx)
		}
		return f.Request.Answers().End != nil || f.Kind.Poll(ctx)
	})
	if f.Again && ctx.Err() == nil && !f.IsStale() {
		f.Ledger.Count(f.Acts.Again)
		f.Post(ctx)
	}
	others.Wait()
	f.Kind.Poll(ctx) // once more: a final answer must not change
}

// postWrong posts the requests that must be refused in every state.
func (f *Follower[R, E]) postWrong(ctx context.Context) {
	for _, w := range f.Posts.Wrong {
		switch a := f.Insist(ctx, http.MethodPost, f.Posts.Path, w.Body); {
		case a.IsUnclear():
			return
		case a.Code == w.Code && a.Status >= 400 && a.ReqID == "" && a.TxID == "":
			f.Ledger.Count(w.Act)
		case w.Other == "" || a.Code != w.Other:
			f.Contradict("one of %s, %v: got %s, want %s", w.Act, w.Body, a, w.Code)
		}
	}
}

// PostCopies posts the request several times at once, each copy until it is answered.
func (f *Follower[R, E]) PostCopies(ctx context.Context) {
	if f.Copies > 1 {
		f.Ledger.Count(f.Acts.Repeats)
	}
	Concurrently(f.Copies, func() { f.Post(ctx) })
}

// Submit posts the request once.
func (f *Follower[R, E]) Submit(ctx context.Context) Answer {
	if f.Posts.Submit != nil {
		return f.Posts.Submit(ctx)
	}
	return f.Ask(ctx, http.MethodPost, f.Posts.Path, f.Posts.Body)
}

// Post posts the request until the answer is clear. The answer to a post that spans a restore proves nothing, so the
// client posts it again to the restored database, which has the request or stores it anew. A client with a final answer
// posts no more after a restore.
func (f *Follower[R, E]) Post(ctx context.Context) {
	first := f.Generation()
	retry.Poll(ctx, 0, func() bool {
		stale := f.IsStale()
		if stale && f.Request.Answers().End != nil {
			return true
		}
		a := f.Submit(ctx)
		if a.IsUnclear() || f.Replaced(a.Generation) || !f.Kind.RecordPost(ctx, a, stale || a.Generation != first) {
			return false
		}
		f.Request.Change(func(t *Answers[E]) { t.Generation = max(t.Generation, a.Generation) })
		return true
	})
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
			a = f.Ask(ctx, http.MethodPost, f.Posts.Path, f.Posts.Conflicting)
		}
		return a
	}
	a := retry.Until(ctx, submit, func(a Answer) bool { return !a.IsUnclear() || f.Replaced(begun) })
	if a.IsUnclear() || f.Replaced(begun) {
		return
	}
	f.Ledger.Count(f.Acts.Conflicts)
	recorded := a.Code == "REQUEST_RECORDED" && f.Request.Answers().Recorded // what only a release has recorded answers every post so
	if a.Status != http.StatusConflict || a.Code != f.Posts.ConflictCode && !recorded {
		f.Contradict("another request under its id: got %s, want 409 %s", a, f.Posts.ConflictCode)
	}
}

// AskCurrent asks once for what the current database has accepted. An answer that a restore may have
// come before is none; the checks at the end of the run ask again.
func (f *Follower[R, E]) AskCurrent(ctx context.Context, path string) (a Answer, ok bool) {
	begun := f.Generation()
	a = f.Ask(ctx, http.MethodGet, path, nil)
	return a, !a.IsUnclear() && !f.Replaced(begun) && !f.IsStale()
}

// RecordID records the id in an answer, which says whether the request was stored just then. A request must keep its
// first id, and must be stored only once. A restored database may store it anew, unless it was accepted before the backup.
func (f *Follower[R, E]) RecordID(id string, fresh bool, a Answer) {
	var before, now Answers[E]
	f.Request.Change(func(t *Answers[E]) {
		before = *t
		if t.ID != "" && t.Generation < a.Generation && (fresh || id != t.ID) {
			t.Lost, t.ID, t.Fresh = append(t.Lost, t.ID), "", 0
		}
		if t.ID == "" {
			t.ID, t.IDAt = id, time.Now()
		}
		if fresh {
			t.Fresh++
		}
		t.Generation = max(t.Generation, a.Generation)
		now = *t
	})
	switch {
	case id != now.ID || id == "":
		f.Contradict("posted again: got id %q, and before %q", id, now.ID)
	case now.Fresh > 1:
		f.Contradict("%d answers said that it was stored just then: want one, and after it that it is known", now.Fresh)
	case len(now.Lost) > len(before.Lost) && !f.Ledger.MayBeLost(before.Generation, before.IDAt):
		f.Contradict("accepted before the backup as %s, and repeated after the restore: got %s", before.ID, a)
	}
}

// RecordState records the end that an answer has; nil: it is not final. A final answer must never change. A request that
// began after it must get the same.
func (f *Follower[R, E]) RecordState(end *E, a Answer) (final bool) {
	var before Answers[E]
	f.Request.Change(func(t *Answers[E]) {
		before = *t
		if end != nil && t.End == nil {
			t.End, t.EndAt, t.EndGeneration, t.Generation = end, time.Now(), a.Generation, max(t.Generation, a.Generation)
		}
	})
	switch {
	case before.End == nil:
	case end != nil && *end != *before.End:
		f.Contradict("it was %v, and now it is %v", before.End, end)
	case end == nil && a.Begun.After(before.EndAt):
		f.Contradict("it was %v, and a question put after that got %s", before.End, a.State)
	}
	return end != nil
}

// IsStale reports whether the last answer came from a database that was replaced.
func (f *Follower[R, E]) IsStale() bool {
	a := f.Request.Answers()
	return a.ID != "" && a.Generation != f.Ledger.Generation()
}
