package cloudtasks

import "container/heap"

// schedule is a heap of waiting tasks, the earliest first; equal times in no
// promised order. It implements [heap.Interface].
type schedule []*task

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].dueAt.Before(s[j].dueAt) }
func (s schedule) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }

// Push is called by package heap only.
func (s *schedule) Push(x any) { *s = append(*s, x.(*task)) }

// Pop is called by package heap only.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	t := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return t
}

func (s *schedule) add(t *task)     { heap.Push(s, t) }
func (s *schedule) earliest() *task { return heap.Pop(s).(*task) }
