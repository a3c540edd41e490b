package cloudtasks

import "container/heap"

// notDue is the place of a task that waits in no schedule.
const notDue = -1

// schedule is a heap of waiting tasks, the earliest first; equal times in no
// promised order. It implements [heap.Interface].
type schedule []*task

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].dueAt.Before(s[j].dueAt) }

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

// Push is called by package heap only.
func (s *schedule) Push(x any) {
	t := x.(*task)
	t.place = len(*s)
	*s = append(*s, t)
}

// Pop is called by package heap only.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	t := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	t.place = notDue
	return t
}

func (s *schedule) add(t *task)     { heap.Push(s, t) }
func (s *schedule) earliest() *task { return heap.Pop(s).(*task) }

// drop takes the task out if it waits here.
func (s *schedule) drop(t *task) {
	if t.place != notDue {
		heap.Remove(s, t.place)
	}
}
