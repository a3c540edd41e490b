package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// H33: an overdue submitter waits for no more sweeps than one cycle over all takes, however
// few each sweep takes. A submitter in PROTECT takes up no place.
func TestH33SweepStarvesNobody(t *testing.T) {
	t.Parallel()
	const many = 9
	db := storetest.New(t)
	for n := range many {
		leftBehind{"QUEUED", []string{postedLongAgo}}.arrange(t, db, numbered(n))
		run(t, db, `update submitter_lease set rerun_requested = false`)
	}
	rapid.Check(t, func(rt *rapid.T) {
		m := newSweepModel(rt, t.Context(), db, many)
		rt.Repeat(map[string]func(*rapid.T){
			"sweep":   m.sweep,
			"sweep 2": m.sweep, // twice as often as the rest
			"late":    m.change("late", func(s *swept, yes bool) { s.late = yes }),
			"protect": m.change("protect", func(s *swept, yes bool) { s.protected = yes }),
		})
		taken := map[txmanager.Submitter]bool{}
		due := m.due()
		for range (len(due) + m.page - 1) / m.page {
			for _, s := range m.sweepOnce(rt) {
				taken[s] = true
			}
		}
		for _, s := range due {
			if !taken[s.sub] {
				rt.Errorf("%s: got not swept while %d overdue were gone round by %d, want it swept", s.sub, len(due), m.page)
			}
		}
	})
}

// swept is what the sweep ought to know of one submitter.
type swept struct {
	sub             txmanager.Submitter
	late, protected bool
	last            int // the sweep that took it; 0: none
}

// sweepModel is what the sweep ought to do with a few submitters.
type sweepModel struct {
	ctx    context.Context
	db     storetest.Bundle
	page   int
	sweeps int
	all    []*swept
}

// newSweepModel makes everybody late, out of PROTECT and never swept.
func newSweepModel(rt *rapid.T, ctx context.Context, db storetest.Bundle, many int) *sweepModel {
	m := &sweepModel{ctx: ctx, db: db, page: rapid.IntRange(1, many+1).Draw(rt, "page")}
	m.exec(rt, `update submitter set swept_at = '-infinity'`)
	for n := range many {
		m.all = append(m.all, &swept{sub: numbered(n), late: true})
		m.tell(rt, *m.all[n])
	}
	return m
}

func (m *sweepModel) exec(rt *rapid.T, statement string, args ...any) {
	if _, err := m.db.DB.Exec(m.ctx, statement, args...); err != nil {
		rt.Fatalf("%s: %v", statement, err)
	}
}

// tell brings the database to what s says.
func (m *sweepModel) tell(rt *rapid.T, s swept) {
	m.exec(rt, `update managed_tx set next_check_at = case when $2 then null else 'infinity'::timestamptz end where submitter = $1`, s.sub, s.late)
	if s.protected {
		m.exec(rt, `insert into protect_incident (submitter, incident, evidence)
			select s.submitter, 1 + (select count(*) from protect_incident p where p.submitter = s.submitter), '{}'
			  from submitter s where s.submitter = $1 on conflict do nothing`, s.sub)
		return
	}
	m.exec(rt, `update protect_incident set closed_at = clock_timestamp(), closed_by = 'o', mode = 'resume', reason = 'r'
		where submitter = $1 and closed_at is null`, s.sub)
}

// change is an action that changes one submitter.
func (m *sweepModel) change(name string, set func(*swept, bool)) func(*rapid.T) {
	return func(rt *rapid.T) {
		s := rapid.SampledFrom(m.all).Draw(rt, name)
		set(s, rapid.Bool().Draw(rt, "yes"))
		m.tell(rt, *s)
	}
}

// due are those to be taken.
func (m *sweepModel) due() []*swept {
	return slices.DeleteFunc(slices.Clone(m.all), func(s *swept) bool { return !s.late || s.protected })
}

func (m *sweepModel) sweep(rt *rapid.T) { m.sweepOnce(rt) }

// sweepOnce compares one sweep with the model. It takes up to its limit of the due submitters,
// the least recently taken first. It may choose between those that one earlier sweep took.
func (m *sweepModel) sweepOnce(rt *rapid.T) []txmanager.Submitter {
	got, _, err := m.db.Overdue(m.ctx, grace, m.page, time.Time{})
	due := m.due()
	if want := min(m.page, len(due)); err != nil || len(got) != want {
		rt.Fatalf("a sweep of %d at a time, %d due: got %v, %v; want %d", m.page, len(due), got, err, want)
	}
	m.sweeps++
	latest, earliest := 0, m.sweeps // of those taken, and of those left
	for _, s := range due {
		if !slices.Contains(got, s.sub) {
			earliest = min(earliest, s.last)
			continue
		}
		latest = max(latest, s.last)
		s.last = m.sweeps
	}
	taken := slices.DeleteFunc(due, func(s *swept) bool { return s.last != m.sweeps })
	if len(taken) != len(got) || latest > earliest {
		rt.Fatalf("sweep %d: got %v, one of them last in sweep %d while one of sweep %d was left; want the longest unswept of those due",
			m.sweeps, got, latest, earliest)
	}
	return got
}
