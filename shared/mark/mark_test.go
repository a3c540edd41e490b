package mark_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/mark"
)

// world is an object store whose answers can be lost.
type world struct {
	seen    mark.Observed
	ids     int
	writers []string // by generation: the database that wrote it
	over    []bool   // by generation: whether the writer held the overwritten mark
}

// database holds the rows of one database.
type database struct {
	name     string
	held     map[string]int64 // by id: the generation over which it was prepared
	latest   int64
	seen     string // the last seen id
	believed bool
}

func (d *database) copy(name string) *database {
	return &database{name, maps.Clone(d.held), d.latest, d.seen, d.believed}
}

// process is one keeper; each of its steps waits for its turn.
type process struct {
	w    *world
	db   *database
	turn chan bool // true: the answer is lost
	done chan error
	next chan struct{} // waits for its turn
}

func (p *process) step() (lost bool) {
	p.next <- struct{}{}
	return <-p.turn
}

var errLost = errors.New("the answer was lost")

func (p *process) Read(context.Context) (mark.Observed, error) {
	if p.step() {
		return mark.Observed{}, errLost
	}
	if p.w.seen.Generation == 0 {
		return mark.Observed{}, mark.ErrNone
	}
	return p.w.seen, nil
}

func (p *process) Write(_ context.Context, m mark.Mark, over int64) error {
	lost := p.step()
	if over != p.w.seen.Generation {
		return mark.ErrMoved
	}
	_, held := p.db.held[p.w.seen.ID]
	p.w.over = append(p.w.over, over == 0 || held)
	p.w.writers = append(p.w.writers, p.db.name)
	p.w.seen = mark.Observed{Mark: m, Generation: over + 1}
	if lost {
		return errLost
	}
	return nil
}

func (p *process) Latest(context.Context) (int64, error) {
	if p.step() {
		return 0, errLost
	}
	return p.db.latest, nil
}

func (p *process) Prepare(_ context.Context, over int64, _ string) (mark.Mark, error) {
	lost := p.step()
	p.w.ids++
	m := mark.Mark{ID: fmt.Sprint(p.w.ids)}
	p.db.held[m.ID] = over
	if lost {
		return mark.Mark{}, errLost
	}
	return m, nil
}

// Evaluate applies the rule of the database's own statement.
func (p *process) Evaluate(_ context.Context, s mark.Observed) (mark.Verdict, error) {
	lost := p.step()
	verdict := p.db.evaluate(s)
	if lost {
		return 0, errLost
	}
	return verdict, nil
}

func (d *database) evaluate(s mark.Observed) mark.Verdict {
	if _, ok := d.held[s.ID]; !ok {
		if s.Generation <= d.latest {
			return mark.Older
		}
		d.believed = false
		return mark.Foreign
	}
	if s.Generation > d.latest {
		d.latest, d.seen = s.Generation, s.ID
		maps.DeleteFunc(d.held, func(id string, over int64) bool { return id != s.ID && over < s.Generation })
	}
	return mark.Held
}

// Any interleaving of processes of one database, of lost answers, and of a copy made at any moment. A
// single database is never foreign. No mark is written over one that the writer does not hold. Of two
// databases that have both been compared, at most one is trusted once either has written after the
// copy.
func TestTwoDatabasesAndLostAnswers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{}
		dbs := []*database{{name: "one", held: map[string]int64{}, believed: true}}
		var running []*process
		defer func() { // processes that still wait are released
			for _, p := range running {
				_ = p.finish(true)
			}
		}()
		copied := -1 // the number of generations when the copy was made
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				if len(running) > 4 {
					t.Skip()
				}
				running = append(running, start(w, rapid.SampledFrom(dbs).Draw(t, "database")))
			},
			"step": func(t *rapid.T) {
				if len(running) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(running)-1).Draw(t, "process")
				p := running[i]
				p.turn <- rapid.IntRange(0, 5).Draw(t, "lost") == 0
				select {
				case <-p.next:
				case <-p.done:
					running = append(running[:i:i], running[i+1:]...)
				}
			},
			"copy": func(t *rapid.T) {
				if len(dbs) > 1 {
					t.Skip()
				}
				copied = len(w.writers)
				dbs = append(dbs, dbs[0].copy("two"))
			},
			"": func(t *rapid.T) {
				for generation, held := range w.over {
					if !held {
						t.Fatalf("generation %d: written over a mark whose id its database does not hold", generation+1)
					}
				}
				if len(dbs) == 1 && !dbs[0].believed {
					t.Fatal("the only database is called foreign")
				}
				if len(dbs) == 2 && len(w.writers) > copied {
					last := w.seen
					believed := 0
					for _, d := range dbs {
						c := d.copy(d.name)
						if c.evaluate(last); c.believed {
							believed++
						}
					}
					if believed > 1 && !preparedBeforeCopy(dbs, last.ID) {
						t.Fatalf("generation %d by %s: both databases are believed", last.Generation, w.writers[last.Generation-1])
					}
				}
			},
		})
	})
}

// preparedBeforeCopy reports whether the copy has the id. A mark that was under way when the copy was
// made is in both databases, and does not distinguish them.
func preparedBeforeCopy(dbs []*database, id string) bool {
	return !slices.ContainsFunc(dbs, func(d *database) bool { _, ok := d.held[id]; return !ok })
}

func start(w *world, db *database) *process {
	p := &process{w: w, db: db, turn: make(chan bool), done: make(chan error, 1), next: make(chan struct{})}
	go func() { p.done <- mark.Keeper{Object: p, Book: p}.Advance(context.Background(), "test") }()
	<-p.next
	return p
}

// finish lets p run to its end, without answers if they are lost.
func (p *process) finish(lost bool) error {
	for {
		p.turn <- lost
		select {
		case <-p.next:
		case err := <-p.done:
			return err
		}
	}
}

// A restored database is foreign and stays so, and the object is not changed. A later mark of the same
// database never makes an overtaken read foreign.
func TestRestoredDatabaseStaysForeign(t *testing.T) {
	t.Parallel()
	w := &world{}
	db := &database{name: "one", held: map[string]int64{}, believed: true}
	check.OK(t)(advance(w, db))
	backup := db.copy("backup")
	first := w.seen
	check.OK(t)(advance(w, db))
	second := w.seen
	for range 2 {
		check.Err(t, "the backup", mark.ErrForeign)(advance(w, backup))
	}
	if w.seen != second || backup.believed {
		t.Errorf("the backup: got object %+v, believed %v; want %+v untouched, not believed", w.seen, backup.believed, second)
	}
	if got := db.evaluate(first); got != mark.Older || !db.believed {
		t.Errorf("a read that was overtaken: got %v, believed %v; want %v", got, db.believed, mark.Older)
	}
	w.seen = mark.Observed{}
	if err := advance(w, db); !errors.Is(err, mark.ErrGone) || w.seen.Generation != 0 {
		t.Errorf("the object was deleted: got %v, object %+v; want %v and no new object", err, w.seen, mark.ErrGone)
	}
}

// advance runs one keeper alone.
func advance(w *world, db *database) error { return start(w, db).finish(false) }

// overtaken is an object and a book whose first reads return an older mark.
type overtaken struct{ reads, older int }

func (o *overtaken) Read(context.Context) (mark.Observed, error) {
	o.reads++
	if o.reads <= o.older {
		return mark.Observed{Mark: mark.Mark{ID: "first"}, Generation: 1}, nil
	}
	return mark.Observed{Mark: mark.Mark{ID: "second"}, Generation: 2}, nil
}

func (*overtaken) Write(context.Context, mark.Mark, int64) error { return mark.ErrMoved }
func (*overtaken) Latest(context.Context) (int64, error)         { return 2, nil }
func (*overtaken) Prepare(context.Context, int64, string) (mark.Mark, error) {
	return mark.Mark{}, mark.ErrSoon
}

func (*overtaken) Evaluate(_ context.Context, s mark.Observed) (mark.Verdict, error) {
	if s.Generation < 2 {
		return mark.Older, nil
	}
	return mark.Held, nil
}

// A read that the next mark has overtaken is repeated: the mark is not gone. A read that is older again
// means that it is gone.
func TestOvertakenReadIsRepeated(t *testing.T) {
	t.Parallel()
	o := &overtaken{older: 1}
	check.Equal(t, "overtaken", check.Value((mark.Keeper{Object: o, Book: o}).Compare(t.Context()))(t).ID, "second")
	o = &overtaken{older: 9}
	if _, err := (mark.Keeper{Object: o, Book: o}).Compare(t.Context()); !errors.Is(err, mark.ErrGone) || o.reads != 2 {
		t.Errorf("put back: got %v after %d reads, want %v after 2", err, o.reads, mark.ErrGone)
	}
}
