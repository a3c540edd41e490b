package core

import "github.com/fencepost/fencepost/emulator/fake/ubscore/book"

// lines are the entries of one commit in the log's format. Their memory is reused.
type lines struct {
	bytes []byte
	ends  []int
	cut   [][]byte
}

func (l *lines) reset()     { l.bytes, l.ends = l.bytes[:0], l.ends[:0] }
func (l *lines) none() bool { return len(l.ends) == 0 }

func (l *lines) add(e book.Entry) {
	l.bytes = e.Append(l.bytes)
	l.ends = append(l.ends, len(l.bytes))
}

func (l *lines) list() [][]byte {
	l.cut = l.cut[:0]
	from := 0
	for _, to := range l.ends {
		l.cut = append(l.cut, l.bytes[from:to])
		from = to
	}
	return l.cut
}
