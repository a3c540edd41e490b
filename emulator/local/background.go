package local

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// keptOutput is how much a drill that runs in the background has to say, in bytes: the end is kept.
const keptOutput = 64 << 10

// defaultPause is how long a fault lasts that no call ends, where no time is given.
const defaultPause = 30 * time.Second

// Run is one run of a drill in the background.
type Run struct {
	Name    string     `json:"name"`
	Solve   bool       `json:"solve"`
	Started time.Time  `json:"started"`
	Ended   *time.Time `json:"ended"` // nil: it runs
	Failed  bool       `json:"failed"`
	Output  string     `json:"output"` // what it said so far
}

// background has the drill that was started last without a waiting caller.
type background struct {
	mu   sync.Mutex
	last *Run               // nil: none was started
	stop context.CancelFunc // of the last
}

// Write implements [io.Writer]: it keeps what the drill says.
func (b *background) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := append([]byte(b.last.Output), p...)
	if over := len(text) - keptOutput; over > 0 {
		text = text[over:]
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	b.last.Output = string(text)
	return len(p), nil
}

func (b *background) begin(r Run, stop context.CancelFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last, b.stop = &r, stop
}

func (b *background) end(d Drill, err error) {
	_, _ = b.Write([]byte(d.lastLine(err)))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last.Ended, b.last.Failed = new(time.Now()), err != nil
}

// state returns a copy of the last run; nil: none was started.
func (b *background) state() *Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		return nil
	}
	return new(*b.last)
}

func (b *background) cancel() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop != nil {
		b.stop()
	}
}

func (c *Control) routeDrills(mux *http.ServeMux) {
	mux.HandleFunc("GET /drills", c.drills)
	mux.HandleFunc("POST /drills/{name}", c.startDrill)
	mux.HandleFunc("DELETE /drills", c.stopDrill)
}

type listedDrill struct {
	Name    string `json:"name"`
	Meaning string `json:"meaning"`
	Runbook string `json:"runbook"` // a page of the repository
	Needs   string `json:"needs"`   // what the emulator lacks for it; "": nothing
}

// drills lists the drills, and the last run in the background.
func (c *Control) drills(w http.ResponseWriter, _ *http.Request) {
	var out struct {
		Drills []listedDrill `json:"drills"`
		Run    *Run          `json:"run"`
	}
	for _, d := range Drills {
		out.Drills = append(out.Drills, listedDrill{d.Name, d.Meaning, "docs/runbooks/" + d.Runbook, c.lacks(d)})
	}
	out.Run = c.behind.state()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // the client may have left
}

// lacks is what the emulator lacks for the drill; "": nothing.
func (c *Control) lacks(d Drill) string {
	if max(len(c.stack.Nodes), 1) < d.nodes {
		return fmt.Sprintf("the drill %s needs several nodes: start the emulator with --nodes %d", d.Name, d.nodes)
	}
	return ""
}

// startDrill starts a drill that goes on after the answer.
func (c *Control) startDrill(w http.ResponseWriter, r *http.Request) {
	d, solve, ok := c.take(w, r)
	if !ok {
		return
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(r.Context()))
	c.behind.begin(Run{Name: d.Name, Solve: solve, Started: time.Now()}, stop)
	go func() {
		defer c.drilling.Unlock()
		defer stop()
		c.behind.end(d, runDrill(ctx, c.stack, d, solve, defaultPause, &c.behind))
	}()
	w.WriteHeader(http.StatusAccepted)
}

// stopDrill ends the drill that runs in the background, and its fault.
func (c *Control) stopDrill(w http.ResponseWriter, _ *http.Request) {
	c.behind.cancel()
	w.WriteHeader(http.StatusNoContent)
}
