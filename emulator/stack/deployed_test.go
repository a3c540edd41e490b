package stack

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// deployed reads one of Terraform's data files.
func deployed[T any](t *testing.T, name string) (parsed T) {
	t.Helper()
	text, err := os.ReadFile("../../terraform/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &parsed); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return parsed
}

// The stack's queues are the deployed ones, with the settings that the code relies on.
func TestQueuesAreThoseDeployed(t *testing.T) {
	t.Parallel()
	got := deployed[struct {
		MaxAttempts int              `json:"max_attempts"`
		MinBackoff  string           `json:"min_backoff"`
		MaxBackoff  string           `json:"max_backoff"`
		Workers     map[string]int32 `json:"max_concurrent_dispatches"`
	}](t, "queues.json")
	check.Equal(t, "max_attempts (-1, without end)", got.MaxAttempts, -1)
	for _, b := range []struct {
		name, deployed string
		here           time.Duration
	}{{"min_backoff", got.MinBackoff, minBackoff}, {"max_backoff", got.MaxBackoff, maxBackoff}} {
		check.Equal(t, b.name, check.Value(time.ParseDuration(b.deployed))(t), b.here)
	}
	workers := map[string]int32{}
	for kind, n := range queueWorkers {
		workers[string(kind)] = n
	}
	check.Same(t, "tasks of each queue under way at once", got.Workers, workers)
}

// The stack's URL map has the load balancer's routes, and the same functions with the same queues.
func TestFunctionsAreThoseDeployed(t *testing.T) {
	t.Parallel()
	type function struct {
		Target    string   // "": its name
		Paths     []string // none: internal
		Queue     string
		Transfers bool // only where there are transfers
		Ledgers   bool // calls the trading core
		Long      bool `json:"long_transactions"` // which lock no row of a submitter or a transfer
		Marks     bool // writes the mark outside the database
		Nodes     bool // queries the chains' nodes
		Accepts   bool // stores intents, so that it reads the ids of the chains and makes MACs
	}
	catalogue := deployed[map[string]function](t, "functions.json")
	for _, transfers := range []bool{false, true} {
		s := &Stack{options: Options{Transfers: transfers}}
		public, _ := s.routes()
		here, there := map[string]string{}, map[string]string{}
		for _, r := range public {
			here[r.Pattern] = r.Service
		}
		var targets []string
		for name, f := range catalogue {
			if f.Transfers && !transfers {
				continue
			}
			target := cmp.Or(f.Target, name)
			targets = append(targets, target)
			if here := slices.Contains(callers, target); f.Ledgers != here {
				t.Errorf("%s: got it told of the trading core %t, want %t as here", name, f.Ledgers, here)
			}
			if f.Long != (target == "conservation") {
				t.Errorf("%s: got long transactions %t, want them of checks of conservation alone: all others lock rows of submitters and transfers", name, f.Long)
			}
			if here := !slices.Contains(nodeless, target); f.Nodes != here {
				t.Errorf("%s: functions.json says nodes %t, want %t, as here", name, f.Nodes, here)
			}
			if here := slices.Contains([]string{"create", "transfer", "admin"}, target); f.Accepts != here {
				t.Errorf("%s: functions.json says accepts %t, want %t, as here", name, f.Accepts, here)
			}
			if here := target == sweepJob || target == "admin"; f.Marks != here {
				t.Errorf("%s: got it writing the mark %t, want %t: the sweep and admin alone do, beside the migration job", name, f.Marks, here)
			}
			for _, path := range f.Paths {
				there[path] = target
			}
			if f.Queue != "" && f.Queue != target {
				t.Errorf("%s: got it serving the queue of %s, want its own: tasks call the function that their queue is named after", name, f.Queue)
			}
			if len(f.Paths) > 0 && f.Queue != "" {
				t.Errorf("%s: got public paths and a queue, want two functions: the one is reached from outside, the other never", name)
			}
		}
		check.Same(t, fmt.Sprintf("public paths and their functions, transfers %t", transfers), there, here)
		slices.Sort(targets)
		check.Same(t, fmt.Sprintf("functions, transfers %t", transfers), slices.Compact(targets), s.functionNames())
	}
}
