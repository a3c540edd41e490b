package shared_test

import (
	"go/ast"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// makes is on which queues a call of what all functions are made of makes tasks.
var makes = map[string][]string{
	"Tasks.EnqueueAdvance":   {"advance"},
	"Tasks.Publish":          {"publish"},
	"Tasks.SweepPublish":     {"publish"},
	"Tasks.PublishTest":      {"publish"},
	"Deliveries.Serve":       {"publish"},
	"Tasks.Step":             {"transfer"},
	"Tasks.SweepTransfer":    {"transfer"},
	"Tasks.SweepAct":         {"transfer"},
	"Tasks.Sweep":            {}, // whose kinds stand with sweepTasks
	"worker.ServeSubmitter":  {"advance", "receipt", "confirm", "resubmit"},
	"Intents.RecordDecision": {"advance"},
	"a.Release":              {"advance"},
	"Coordinator.Drive":      {"advance"}, // of a payout
	"Coordinator.Resolve":    {"advance"},
	"Coordinator.Submit":     {},
	"Coordinator.Cancel":     {},
	"txmanager.KindAdvance":  {"advance"},
	"txmanager.KindReceipt":  {"receipt"},
	"txmanager.KindConfirm":  {"confirm"},
	"txmanager.KindResubmit": {"resubmit"},
}

// serversCode is the code of package functions and its servers: by package, the functions and
// methods by their name.
func serversCode(t *testing.T) map[string]map[string]*ast.FuncDecl {
	t.Helper()
	declared := map[string]map[string]*ast.FuncDecl{}
	for _, file := range parsed(t, "../functions") {
		in := file.Name.Name
		if declared[in] == nil {
			declared[in] = map[string]*ast.FuncDecl{}
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				declared[in][f.Name.Name] = f
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

// reached adds the names that a function uses, and those of the functions that it uses. It excludes
// the kinds of work for which it enqueues no tasks, because it only serves or checks them.
func reached(declared map[string]map[string]*ast.FuncDecl, in, name string, used map[string]bool) {
	names := uses(declared[in][name].Body)
	sweeps := slices.Contains(names, "a.sweepTasks")
	for _, name := range names {
		if used[in+" "+name] || strings.HasPrefix(name, "txmanager.Kind") && !sweeps {
			continue
		}
		used[in+" "+name] = true
		parts := strings.Split(name, ".")
		last := parts[len(parts)-1]
		for _, there := range []string{in, parts[0], "serve", "transfers"} { // what is exported is called by a port
			if declared[there][last] != nil && (there == in || ast.IsExported(last)) {
				reached(declared, there, last, used)
				break
			}
		}
	}
}

// port is the last two parts of a name: the port and its operation.
func port(name string) string {
	parts := strings.Split(name, ".")
	return strings.Join(parts[max(0, len(parts)-2):], ".")
}

// queuesOf are the queues on which the used code enqueues tasks.
func queuesOf(t *testing.T, used map[string]bool) map[string]bool {
	t.Helper()
	queues := map[string]bool{}
	for name := range used {
		_, name, _ := strings.Cut(name, " ")
		there, known := makes[port(name)]
		for _, part := range []string{"Tasks.", "Coordinator.", "worker."} {
			if strings.HasPrefix(port(name), part) && !known {
				t.Errorf("the functions use %s: say above on which queues that makes tasks", name)
			}
		}
		for _, queue := range there {
			queues[queue] = true
		}
	}
	return queues
}

// usesAny reports whether the used code uses one of the ports.
func usesAny(used map[string]bool, ports ...string) bool {
	for name := range used {
		_, name, _ := strings.Cut(name, " ")
		for _, p := range ports {
			if strings.HasPrefix(port(name), p) {
				return true
			}
		}
	}
	return false
}

// asksLedgers is true if the used code calls the ledgers, of which the trading core is one.
func asksLedgers(used map[string]bool) bool { return usesAny(used, "Coordinator.", "Monitor.") }

// queriesNodes is true where the code queries a chain's nodes, itself or through a ledger.
func queriesNodes(used map[string]bool) bool {
	return usesAny(used, "a.WorkerOf", "a.Release", "Connector.", "c.Nodes") || asksLedgers(used)
}

// A function may make tasks on the queues that its code makes tasks on: where it may
// not, its first task is refused; on others it could make any. And those that ask the
// ledgers have the trading core's secret, no others. The same holds for the nodes' URLs.
func TestFunctionsDeployedMayDoWhatTheyDo(t *testing.T) {
	t.Parallel()
	catalogue := decoded[map[string]struct {
		Target   string
		Enqueues []string
		Ledgers  bool
		Nodes    bool
	}](t, "functions.json")
	declared := serversCode(t)
	sessions := []string{"advance", "receipt", "confirm", "resubmit"}
	for name, f := range catalogue {
		target := f.Target
		if target == "" {
			target = name
		}
		route := "Route" + strings.ToUpper(target[:1]) + target[1:]
		if slices.Contains(sessions, target) {
			route = "RouteSession"
		}
		used := map[string]bool{}
		for in, names := range declared {
			if names[route] != nil {
				reached(declared, in, route, used)
			}
		}
		if len(used) == 0 {
			t.Fatalf("%s: got no %s, want the function that says what it serves", name, route)
		}
		deployed := map[string]bool{}
		for _, queue := range f.Enqueues {
			deployed[queue] = true
		}
		check.Same(t, name+": queues that are deployed, beside those of its code", deployed, queuesOf(t, used))
		check.Equal(t, name+": has the trading core's URL and secret, as its code asks the ledgers", f.Ledgers, asksLedgers(used))
		check.Equal(t, name+": has the nodes' URLs, as its code queries nodes", f.Nodes, queriesNodes(used))
	}
}
