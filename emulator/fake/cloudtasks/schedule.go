package cloudtasks

import (
	"cmp"
	"slices"
)

// schedule is the waiting tasks, the earliest first; equal times in no promised
// order. The time of a task does not change while it is in the schedule.
type schedule []*task

// find returns the place of the task, and whether it waits here.
func (s schedule) find(t *task) (at int, waits bool) {
	return slices.BinarySearchFunc(s, t, func(a, b *task) int {
		return cmp.Or(a.dueAt.Compare(b.dueAt), cmp.Compare(a.id, b.id))
	})
}

func (s *schedule) add(t *task) {
	at, _ := s.find(t)
	*s = slices.Insert(*s, at, t)
}

func (s *schedule) earliest() *task {
	t := (*s)[0]
	(*s)[0] = nil
	*s = (*s)[1:]
	return t
}

// drop takes the task out if it waits here.
func (s *schedule) drop(t *task) {
	if at, waits := s.find(t); waits {
		*s = slices.Delete(*s, at, at+1)
	}
}
