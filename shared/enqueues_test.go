package shared_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// makes is on which queues a call of what all functions are made of makes tasks.
var makes = map[string][]string{
	"tasks.EnqueueAdvance":          {"advance"},
	"tasks.Publish":                 {"publish"},
	"tasks.SweepPublish":            {"publish"},
	"teller.Serve":                  {"publish"},
	"tasks.Step":                    {"transfer"},
	"tasks.SweepTransfer":           {"transfer"},
	"tasks.Sweep":                   {}, // whose kinds stand with sweepTasks
	"worker.ServeSubmitter":         {"advance", "receipt", "confirm", "resubmit"},
	"worker.ReleaseSubmitter":       {"advance"},
	"transfers.coordinator.Drive":   {"advance"}, // of a payout
	"transfers.coordinator.Resolve": {"advance"},
	"transfers.coordinator.Submit":  {},
	"transfers.coordinator.Cancel":  {},
	"txmanager.KindAdvance":         {"advance"},
	"txmanager.KindReceipt":         {"receipt"},
	"txmanager.KindConfirm":         {"confirm"},
	"txmanager.KindResubmit":        {"resubmit"},
}

// edge is the code of package functions, methods of its parts as a.name.
func edge(t *testing.T) map[string]*ast.FuncDecl {
	t.Helper()
	files, err := filepath.Glob("../functions/*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]*ast.FuncDecl{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			switch {
			case !ok:
			case f.Recv == nil:
				declared[f.Name.Name] = f
			case len(f.Recv.List[0].Names) == 1 && f.Recv.List[0].Names[0].Name == "a":
				declared["a."+f.Name.Name] = f
			}
		}
	}
	return declared
}

// uses are the names that code has, those with dots whole.
func uses(code ast.Node) (names []string) {
	ast.Inspect(code, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			names = append(names, n.Name)
		case *ast.SelectorExpr:
			inner := uses(n.X)
			if len(inner) == 1 {
				inner[0] += "." + n.Sel.Name
			}
			names = append(names, inner...)
			return false
		}
		return true
	})
	return names
}

// reached adds the functions that a function uses, recursively. It excludes the kinds of work
// for which it enqueues no tasks, because it only serves or checks them.
func reached(declared map[string]*ast.FuncDecl, name string, used map[string]bool) {
	f := declared[name]
	if f == nil {
		return
	}
	names := uses(f.Body)
	sweeps := slices.Contains(names, "a.sweepTasks")
	for _, name := range names {
		if used[name] || strings.HasPrefix(name, "txmanager.Kind") && !sweeps {
			continue
		}
		used[name] = true
		reached(declared, name, used)
	}
}

// queuesOf are the queues on which the used code enqueues tasks.
func queuesOf(t *testing.T, used map[string]bool) map[string]bool {
	t.Helper()
	queues := map[string]bool{}
	for name := range used {
		there, known := makes[strings.TrimPrefix(name, "a.")]
		for _, part := range []string{"a.tasks.", "a.worker.", "a.transfers.coordinator."} {
			if strings.HasPrefix(name, part) && !known {
				t.Errorf("the functions use %s: say above on which queues that makes tasks", name)
			}
		}
		for _, queue := range there {
			queues[queue] = true
		}
	}
	return queues
}

// asksLedgers is true if the used code calls the ledgers, of which the trading core is one.
func asksLedgers(used map[string]bool) bool {
	for name := range used {
		if strings.HasPrefix(name, "a.transfers.coordinator.") || strings.HasPrefix(name, "a.transfers.monitor.") {
			return true
		}
	}
	return false
}

// queriesNodes is true where the code queries a chain's nodes, itself or through a ledger.
func queriesNodes(used map[string]bool) bool {
	return used["a.chainOf"] || used["a.workerOf"] || used["a.eachChain"] || asksLedgers(used)
}

// A function may make tasks on the queues that its code makes tasks on: where it may
// not, its first task is refused; on others it could make any. And those that ask the
// ledgers have the trading core's secret, no others. The same holds for the nodes' URLs.
func TestFunctionsDeployedMayDoWhatTheyDo(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../terraform/functions.json")
	if err != nil {
		t.Fatal(err)
	}
	var catalogue map[string]struct {
		Target   string
		Enqueues []string
		Ledgers  bool
		Nodes    bool
	}
	if err := json.Unmarshal(text, &catalogue); err != nil {
		t.Fatal(err)
	}
	declared := edge(t)
	sessions := []string{"advance", "receipt", "confirm", "resubmit"}
	for name, f := range catalogue {
		target := f.Target
		if target == "" {
			target = name
		}
		route := "a.route" + strings.ToUpper(target[:1]) + target[1:]
		if slices.Contains(sessions, target) {
			route = "a.routeSession"
		}
		if declared[route] == nil {
			t.Fatalf("%s: got no %s, want the function that says what it serves", name, route)
		}
		used := map[string]bool{}
		reached(declared, route, used)
		deployed := map[string]bool{}
		for _, queue := range f.Enqueues {
			deployed[queue] = true
		}
		if diff := cmp.Diff(queuesOf(t, used), deployed); diff != "" {
			t.Errorf("%s: queues (-its code's +deployed):\n%s", name, diff)
		}
		if want := asksLedgers(used); f.Ledgers != want {
			t.Errorf("%s: got the trading core's URL and secret %t, want %t, as its code asks the ledgers", name, f.Ledgers, want)
		}
		if want := queriesNodes(used); f.Nodes != want {
			t.Errorf("%s: got the nodes' URLs %t, want %t, as its code queries nodes", name, f.Nodes, want)
		}
	}
}
