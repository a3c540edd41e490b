package main

import (
	"io"
	"sync"
)

// lines lets several goroutines write to one writer, one line at a time.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}
