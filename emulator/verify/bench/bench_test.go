package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{nil, 0.5, 0}, {[]float64{7}, 0.99, 7}, {[]float64{3, 1, 2}, 0.5, 2}, {[]float64{4, 1, 2, 3}, 0.5, 2.5}, {[]float64{0, 100}, 0.99, 99},
	} {
		check.Equal(t, fmt.Sprintf("quantile(%v, %v)", c.values, c.q), quantile(c.values, c.q), c.want)
	}
}

// The time of an ended process still counts.
func TestTimeOfEndedProcessesCounts(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	c := &cpu{functions: map[int]float64{1 << 30: 5}} // this process has ended
	if got := c.readFunctions([]int{os.Getpid(), 1 << 30}); got < 5 {
		t.Errorf("got %v s, want at least the 5 of the dead", got)
	}
}

func TestParseRate(t *testing.T) {
	t.Parallel()
	got, err := parseRate([]byte("latency average = 5 ms\ntps = 6179.25 (without initial connection time)\n"))
	if err != nil || got != 6179.25 {
		t.Errorf("got %v, %v, want 6179.25", got, err)
	}
	if _, err := parseRate([]byte("no")); err == nil {
		t.Error("without tps: got no error")
	}
}

func TestScenariosByName(t *testing.T) {
	t.Parallel()
	names := func(given ...string) (list []string) {
		chosen, err := choose(given)
		if err != nil {
			t.Errorf("%v: %v", given, err)
		}
		for _, s := range chosen {
			list = append(list, s.name)
		}
		return list
	}
	check.Same(t, "some", names("burst", strict, baselinePG), []string{baselinePG, strict, burst1, burst10})
	if got := names("all"); len(got) != len(scenarios()) || len(names()) >= len(got) {
		t.Errorf("all: got %d, by default %d, want all %d and fewer", len(got), len(names()), len(scenarios()))
	}
	if _, err := choose([]string{"burst-1", "bursts"}); err == nil {
		t.Error("an unknown name: got no error")
	}
}

// A request is encoded as any client would send it.
func TestRequestIsEncodedAsByAnyClient(t *testing.T) {
	t.Parallel()
	l := load{Token: "secret", Submitters: []txmanager.Submitter{"a", "b"}, Name: "tx"}
	req := check.Value(http.ReadRequest(bufio.NewReader(bytes.NewReader(l.request(3)))))(t)
	var body struct{ Submitter, RequestID string }
	check.OK(t)(json.Unmarshal(check.Value(io.ReadAll(req.Body))(t), &body))
	if got := req.Method + req.URL.Path + req.Header.Get("Authorization") + body.Submitter + body.RequestID; got != "POST/api/v1/txBearer secretbtx-3" {
		t.Errorf("got %q", got)
	}
}

// Requests at a rate are due one after the other; without a rate all are due at once.
func TestWhenRequestsAreDue(t *testing.T) {
	t.Parallel()
	began := time.Now()
	if got := (load{PerSecond: 10}).wait(20, began); got < 1900*time.Millisecond || got > 2*time.Second {
		t.Errorf("the 20th at 10/s: got %v, want 2 s", got)
	}
	check.Equal(t, "without a rate", (load{}).wait(20, began), 0)
}

func sample() []measurement {
	var all []measurement
	for _, s := range scenarios() {
		one := result{figures: figures{confirmedPerS: float64(s.shape.window), cpuPer1000: 2}, latencies: []float64{0.01, 0.3, 0.31}}
		all = append(all, measurement{s, []result{one, one}})
	}
	return all
}

// Each plot has every point.
func TestPlotsHaveEveryPoint(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	check.OK(t)(writePoints(folder, sample()))
	for name, want := range map[string]int{"throughput": 6, "flat": 3, "submitters": 4, "latency": 7} {
		text := check.Value(os.ReadFile(filepath.Join(folder, name+".tsv")))(t)
		if got := strings.Count(string(text), "\n"); got != want || strings.Contains(string(text), "NaN") {
			t.Errorf("%s: got %q, want %d points", name, text, want)
		}
	}
}

// The script draws a picture of each plot that has points.
func TestPlotsAreDrawn(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gnuplot"); err != nil {
		t.Skip("gnuplot is not in PATH: install the package gnuplot-nox")
	}
	points, pictures := t.TempDir(), t.TempDir()
	check.OK(t)(writePoints(points, sample()))
	check.OK(t)(os.Remove(filepath.Join(points, "flat.tsv")))
	output, err := exec.CommandContext(t.Context(), "../../../scripts/plots", points, pictures).CombinedOutput()
	if err != nil {
		t.Fatalf("draw the plots: %v\n%s", err, output)
	}
	drawn := check.Value(filepath.Glob(filepath.Join(pictures, "*")))(t)
	check.Same(t, "the pictures", drawn, []string{
		filepath.Join(pictures, "latency.svg"), filepath.Join(pictures, "submitters.svg"), filepath.Join(pictures, "throughput.svg"),
	})
	for _, name := range drawn {
		picture := check.Value(os.ReadFile(name))(t)
		if !strings.Contains(string(picture), "<path") || !strings.HasSuffix(strings.TrimSpace(string(picture)), "</svg>") {
			t.Errorf("%s: got %d bytes, want a complete picture with a drawing", name, len(picture))
		}
	}
}

// Without gnuplot the script fails and says what to install.
func TestPlotsNeedGnuplot(t *testing.T) {
	t.Parallel()
	bin := t.TempDir() // has the programs of the script, but neither gnuplot nor apt-get
	for _, name := range []string{"bash", "dirname", "realpath"} {
		check.OK(t)(os.Symlink(check.Value(exec.LookPath(name))(t), filepath.Join(bin, name)))
	}
	script := exec.CommandContext(t.Context(), "../../../scripts/plots", t.TempDir(), t.TempDir())
	script.Env = []string{"PATH=" + bin}
	output, err := script.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "Install gnuplot") {
		t.Errorf("got %v and the output %q, want a failure that says to install gnuplot", err, output)
	}
}

// The JSON has each scenario's medians under the documented keys.
func TestJSONHasDocumentedKeys(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bench.json")
	m := measurement{scenario{name: burst1}, []result{{figures: figures{acceptedPerS: 1}}, {figures: figures{acceptedPerS: 9}}, {figures: figures{acceptedPerS: 2}}}}
	check.OK(t)(writeJSON(path, []measurement{m}))
	var got map[string]map[string]float64
	check.OK(t)(json.Unmarshal(check.Value(os.ReadFile(path))(t), &got))
	check.Same(t, "the figures", got, map[string]map[string]float64{"burst-1": {"accepted_per_s": 2, "runs": 3}})
}
