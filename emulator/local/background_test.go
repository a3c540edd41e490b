package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/check"
)

// The control address lists all drills with what the emulator lacks, and starts none that it cannot run.
func TestControlListsDrillsAndRefuses(t *testing.T) {
	t.Parallel()
	c := &Control{stack: new(stack.Stack)}
	c.drilling.Lock() // as while a drill runs
	mux := http.NewServeMux()
	c.routeDrills(mux)
	for _, one := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "/drills", 200, `"run":null`}, {"POST", "/drills/nothing", 404, "there is no drill nothing"}, {"POST", "/drills/slow-node", 409, "needs several nodes"},
		{"POST", "/drills/reorg", 409, "another drill is running"}, {"DELETE", "/drills", 204, ""},
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(one.method, one.path, nil))
		if w.Code != one.status || !strings.Contains(w.Body.String(), one.want) {
			t.Errorf("%s %s: got %d %s, want %d with %q", one.method, one.path, w.Code, w.Body, one.status, one.want)
		}
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/drills", nil))
	var got struct{ Drills []listedDrill }
	check.OK(t)(json.Unmarshal(w.Body.Bytes(), &got))
	check.Equal(t, "drills", len(got.Drills), len(Drills))
}

// The last run keeps the end of what it says, and how it ended.
func TestBackgroundKeepsTheEnd(t *testing.T) {
	t.Parallel()
	var b background
	if b.state() != nil {
		t.Error("before the first: got a run, want none")
	}
	b.cancel()
	stopped := false
	b.begin(Run{Name: "reorg", Started: time.Now()}, func() { stopped = true })
	for i := range 10_000 {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	got := b.state()
	if got.Ended != nil || len(got.Output) > keptOutput || !strings.HasPrefix(got.Output, "line ") || !strings.HasSuffix(got.Output, "line 9999\n") {
		t.Errorf("while it runs: got %d bytes, from %.20q on", len(got.Output), got.Output)
	}
	b.cancel()
	b.end(Drills[0], errors.New("broken"))
	if got := b.state(); !stopped || got.Ended == nil || !got.Failed || !strings.HasSuffix(got.Output, failed+"broken\n") {
		t.Errorf("at the end: got stopped %t, %+v", stopped, got)
	}
}
