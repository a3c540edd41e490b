package shared_test

import (
	"go/ast"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/otlptranslator"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/telemetry/dashboard"
)

// instrument is a metric as shared/telemetry/metrics.go makes it.
type instrument struct{ variable, kind, name, unit string }

var (
	made   = regexp.MustCompile(`(?m)^\t(\w+) += (counter|seconds|histogram|gauge|last)\("(\w+)", "[^"]*"(?:, "([^"]*)")?`)
	inKind = map[string]otlptranslator.MetricType{
		"counter": otlptranslator.MetricTypeMonotonicCounter, "seconds": otlptranslator.MetricTypeMonotonicCounter,
		"histogram": otlptranslator.MetricTypeHistogram, "gauge": otlptranslator.MetricTypeGauge, "last": otlptranslator.MetricTypeGauge,
	}
)

func instruments(t *testing.T) (all []instrument) {
	t.Helper()
	for _, m := range made.FindAllStringSubmatch(text(t, "telemetry", "metrics.go"), -1) {
		i := instrument{m[1], m[2], m[3], m[4]}
		if i.kind == "seconds" || i.kind == "histogram" {
			i.unit = "s"
		}
		all = append(all, i)
	}
	atLeast(t, "metrics", len(all), 40)
	return all
}

// metricNames are the names of the metrics, in order.
func metricNames(t *testing.T) (names []string) {
	t.Helper()
	for _, i := range instruments(t) {
		names = append(names, i.name)
	}
	slices.Sort(names)
	return names
}

// The page lists each metric that the code declares, once, and no other.
func TestDocsHaveEveryMetric(t *testing.T) {
	t.Parallel()
	var listed []string
	for _, name := range each(t, readPage(t, "../docs/telemetry.md"), "(?m)^\\| `([a-zA-Z_]+)` \\|") {
		listed = append(listed, "fencepost_"+name)
	}
	slices.Sort(listed)
	check.Same(t, "metrics of docs/telemetry.md, beside those declared", listed, metricNames(t))
}

// Each metric has one name: on the page for Prometheus, by OTLP and in Cloud Monitoring. Prometheus and Cloud Monitoring's
// collector add the unit and the kind to a name that does not end with them.
func TestMetricsHaveOneSpelling(t *testing.T) {
	t.Parallel()
	namer := otlptranslator.MetricNamer{WithMetricSuffixes: true}
	for _, i := range instruments(t) {
		got, err := namer.Build(otlptranslator.Metric{Name: i.name, Unit: i.unit, Type: inKind[i.kind]})
		if err != nil || got != i.name {
			t.Errorf("%s, a %s in %q: Prometheus spells it %q, %v; want one name", i.name, i.kind, i.unit, got, err)
		}
	}
}

// labelled are the metrics as PromQL knows them, each with its labels as the code gives them.
func labelled(t *testing.T) map[string][]string {
	t.Helper()
	of := labelsOf(t)
	all := map[string][]string{}
	for _, i := range instruments(t) {
		labels, recorded := of[i.variable]
		if !recorded {
			t.Errorf("%s is recorded nowhere", i.name)
		}
		if i.kind != "histogram" {
			all[i.name] = labels
			continue
		}
		all[i.name+"_bucket"], all[i.name+"_count"], all[i.name+"_sum"] = append([]string{"le"}, labels...), labels, labels
	}
	return all
}

// labelsOf are the labels with which the code records each variable of shared/telemetry. Each call names them by a
// function of metrics.go, or by a variable that such a function gave.
func labelsOf(t *testing.T) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	source := text(t, "telemetry", "metrics.go")
	for _, m := range regexp.MustCompile(`(?m)^func (\w+)\(.*\) metric\.MeasurementOption \{((?:.|\n\t)*)`).FindAllStringSubmatch(source, -1) {
		for _, l := range regexp.MustCompile(`(?:label|attribute\.\w+)\("(\w+)"`).FindAllStringSubmatch(m[2], -1) {
			names[m[1]] = append(names[m[1]], l[1])
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+) += label\("(\w+)"\)`).FindAllStringSubmatch(source, -1) {
		names[m[1]] = []string{m[2]}
	}
	all := map[string][]string{}
	for _, file := range parsed(t, ".", "../functions") {
		ast.Inspect(file.File, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || method.Sel.Name != "Add" && method.Sel.Name != "Record" {
				return true
			}
			variable := lastName(method.X)
			labels := all[variable]
			for _, arg := range call.Args[min(2, len(call.Args)):] {
				labels = append(labels, names[labelFunction(file.File, arg)]...)
			}
			slices.Sort(labels)
			all[variable] = slices.Compact(labels)
			return true
		})
	}
	return all
}

// labelFunction is the function of shared/telemetry that gives the labels: the one called, or the one whose result the
// named variable has.
func labelFunction(file *ast.File, arg ast.Expr) (name string) {
	if call, ok := arg.(*ast.CallExpr); ok {
		return lastName(call.Fun)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		assign, ok := n.(*ast.AssignStmt)
		for i := 0; ok && i < len(assign.Lhs) && len(assign.Rhs) == len(assign.Lhs); i++ {
			if call, isCall := assign.Rhs[i].(*ast.CallExpr); isCall && lastName(assign.Lhs[i]) == lastName(arg) && isTelemetry(call.Fun) {
				name = lastName(call.Fun)
			}
		}
		return true
	})
	return name
}

func isTelemetry(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && lastName(s.X) == "telemetry"
}

// lastName is the name of an identifier, or of the last member of a selector; "": it is neither.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	default:
		return ""
	}
}

var (
	metricUsed  = regexp.MustCompile(`\bfencepost_\w+`)
	groupedBy   = regexp.MustCompile(`\bby \(([^)]*)\)`)
	selected    = regexp.MustCompile(`(\bfencepost_\w+)\{([^}]*)\}`)
	matched     = regexp.MustCompile(`(\w+) ?(?:=~|!=|!~|=)`)
	escaped     = regexp.MustCompile(`\\".*?\\"`)
	ofTerraform = regexp.MustCompile(`\$\{[^}]*\}`)
)

// checkQuery compares the names and the labels of a query with those that the code exports. It returns the metrics.
func checkQuery(t *testing.T, where, query string, exported map[string][]string) (used []string) {
	t.Helper()
	plain := regexp.MustCompile(`"[^"]*"`).ReplaceAllString(query, `""`)
	used = metricUsed.FindAllString(plain, -1)
	for _, name := range used {
		if _, known := exported[name]; !known {
			t.Errorf("%s asks for %s, which nothing exports", where, name)
		}
		for _, m := range groupedBy.FindAllStringSubmatch(plain, -1) {
			for label := range strings.SplitSeq(m[1], ", ") {
				if !slices.Contains(exported[name], label) {
					t.Errorf("%s groups %s by %q; its labels are %v", where, name, label, exported[name])
				}
			}
		}
	}
	for _, m := range selected.FindAllStringSubmatch(plain, -1) {
		for _, label := range matched.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(exported[m[1]], label[1]) {
				t.Errorf("%s selects %s by %q; its labels are %v", where, m[1], label[1], exported[m[1]])
			}
		}
	}
	return used
}

// Dashboards, alerts and pages ask for metrics, and for labels of each, as the code exports them. The dashboards show
// every metric.
func TestMetricsAskedForAreExported(t *testing.T) {
	t.Parallel()
	exported := labelled(t)
	shown := map[string]bool{}
	for _, row := range dashboard.Rows {
		for _, chart := range row.Charts {
			for _, q := range chart.Queries {
				for _, name := range checkQuery(t, "chart "+chart.Title, q.PromQL, exported) {
					shown[regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")] = true
				}
				if by := groupedBy.FindStringSubmatch(strings.Replace(q.PromQL, "le, ", "", 1)); len(q.By) > 0 && (by == nil || by[1] != strings.Join(q.By, ", ")) {
					t.Errorf("chart %s: the legend is by %v, the query %s", chart.Title, q.By, q.PromQL)
				}
			}
		}
	}
	check.Same(t, "metrics on the dashboards, beside those exported", slices.Sorted(maps.Keys(shown)), metricNames(t))
	asked := 0
	alerts := text(t, "../terraform/modules/alerts", ".tf")
	for _, query := range append(each(t, alerts, `(?:promql|quer(?:y|ies)) += (.*)`), each(t, alerts, `(?s)promql = join\((.*?)\]\)`)...) {
		query = strings.ReplaceAll(escaped.ReplaceAllString(ofTerraform.ReplaceAllString(query, ""), "0"), `"`, "")
		asked += len(checkQuery(t, "an alert or a chart of terraform", query, exported))
	}
	atLeast(t, "metrics of alerts", asked, 20)
	pages, _ := filepath.Glob("../docs/*.md")
	for name, page := range pagesByName(t) {
		checkPage(t, "runbook "+name, page, exported)
	}
	for _, path := range pages {
		checkPage(t, path, text(t, path, ".md"), exported)
	}
}

// inCode is what a page shows as code in a line: a metric or a query is there, and nowhere else.
var inCode = regexp.MustCompile("`([^`\n]+)`")

// checkPage checks the queries of a page. A metric's name stands there in whole.
func checkPage(t *testing.T, where, page string, exported map[string][]string) {
	t.Helper()
	for _, m := range inCode.FindAllStringSubmatch(page, -1) {
		name, _, _ := strings.Cut(m[1], "{")
		histogram := exported[name+"_bucket"] != nil
		if !histogram {
			checkQuery(t, where, m[1], exported)
		}
		if !strings.HasSuffix(where, "telemetry.md") {
			for _, word := range regexp.MustCompile(`\b[a-z]+_\w+`).FindAllString(m[1], -1) {
				if _, short := exported["fencepost_"+word]; short {
					t.Errorf("%s: got %q, want fencepost_%s", where, m[1], word)
				}
			}
		}
	}
}
