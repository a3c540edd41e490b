package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// printTables prints all figures, with their bounds where they have one.
func printTables(out io.Writer, all []measurement) {
	byName := map[string]figures{}
	for _, m := range all {
		byName[m.scenario.name] = m.median()
	}
	printFigures(out, all)
	printCounts(out, byName)
	printSpeed(out, byName)
}

// number formats a figure: from 1 on with three significant digits, or all of its whole ones.
func number(v float64) string {
	decimals := 4
	if v >= 1 {
		decimals = max(2-int(math.Log10(v)), 0)
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

func show(f figures, key string) string {
	if v, ok := f[key]; ok {
		return number(v)
	}
	return "-"
}

// shown are the keys in the order of the table.
var shown = []string{
	insertsPerS, dispatchP50, acceptedPerS, confirmedPerS, p50, p99, broadcastP50, createP50, createP99, perBlock,
	refusedPerS, refusedCPU, neighbour, transferPerS, transferP50, transferP99, transferSQL, transferCommit,
	cpuPer1000, cpuFunctions, cpuPostgres, cpuBench, cpuLoad, walPerTx, walImages,
	invocPerTx, sqlPerTx, statementPerTx, commitsPerTx, rpcPerTx, tasksPerTx, createInvoc, createSQL, createCommits, createTasks,
}

func printFigures(out io.Writer, all []measurement) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nmedian of the runs\t")
	for _, m := range all {
		fmt.Fprintf(w, "%s\t", m.scenario.name)
	}
	fmt.Fprintln(w)
	for _, key := range shown {
		if !slices.ContainsFunc(all, func(m measurement) bool { _, ok := m.median()[key]; return ok }) {
			continue
		}
		fmt.Fprintf(w, "%s\t", key)
		for _, m := range all {
			fmt.Fprintf(w, "%s\t", show(m.median(), key))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

// countRow is a line of the table of counts. It has a bound without disturbance and one under load; "":
// none.
type countRow struct{ name, key, alone, loaded string }

var countRows = []countRow{
	{"SQL round trips", sqlPerTx, "<= 6", "<= 0.5"},
	{"SQL statements", statementPerTx, "", ""},
	{"HTTP round trips to the node", rpcPerTx, "<= 4", "<= 0.1"},
	{"function invocations", invocPerTx, "<= 3", "<= 0.05"},
	{"commits to Postgres", commitsPerTx, "<= 6", "<= 0.5"},
	{"a create: invocations", createInvoc, "1", "1"},
	{"a create: SQL round trips", createSQL, "1", "1"},
	{"a create: commits", createCommits, "1", "1"},
}

// countColumns are the columns of the table of counts: the bound's heading and its scenarios.
var countColumns = []struct {
	bound     string
	of        func(countRow) string
	scenarios []string
}{
	{"bound, window 1", func(r countRow) string { return r.alone }, []string{sequential, strict}},
	{"bound, window 2,000", func(r countRow) string { return r.loaded }, []string{burst1, burst10}},
}

func printCounts(out io.Writer, by map[string]figures) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	lines := make([]string, len(countRows)+1)
	for _, c := range countColumns {
		there := slices.DeleteFunc(slices.Clone(c.scenarios), func(name string) bool { return by[name] == nil })
		if len(there) == 0 {
			continue
		}
		lines[0] += c.bound + "\t" + strings.Join(there, "\t") + "\t"
		for i, r := range countRows {
			lines[i+1] += c.of(r) + "\t"
			for _, name := range there {
				lines[i+1] += show(by[name], r.key) + "\t"
			}
		}
	}
	if lines[0] == "" {
		return
	}
	fmt.Fprintln(out, "\nCost of one transaction, from accepted to CONFIRMED (counted)")
	fmt.Fprintf(w, "\t%s\n", lines[0])
	for i, r := range countRows {
		fmt.Fprintf(w, "%s\t%s\n", r.name, lines[i+1])
	}
	w.Flush()
}

// speedRow compares a figure with its reference.
type speedRow struct {
	name     string
	ours     float64
	against  string
	possible float64
	wanted   string
}

// verdict returns the ratio, or the difference where that is compared.
func (r speedRow) verdict() string {
	if strings.HasPrefix(r.wanted, "+") {
		return fmt.Sprintf("%+.4f", r.ours-r.possible)
	}
	return fmt.Sprintf("%.2f", r.ours/r.possible)
}

func speedRows(by map[string]figures) []speedRow {
	inserts, node := by[baselinePG][insertsPerS], by[baselineChain][confirmedPerS]
	return []speedRow{
		{"creates accepted per second, one submitter", by[burst1][acceptedPerS], "pgbench's inserts", inserts, ">= 0.6"},
		{"creates accepted per second, ten", by[burst10][acceptedPerS], "pgbench's inserts", inserts, ">= 0.6"},
		{"confirmed per second, one submitter", by[burst1][confirmedPerS], "sent straight to the node", node, ">= 0.6"},
		{"confirmed per second, ten", by[burst10][confirmedPerS], "one submitter", by[burst1][confirmedPerS], ">= 1"},
		{"confirmed per second, one submitter", by[burst1][confirmedPerS], "the goal", 855, ">= 1"},
		{"confirmed per second, ten", by[burst10][confirmedPerS], "the goal", 855, ">= 1"},
		{"CPU per 1,000, one submitter, s", by[burst1][cpuPer1000], "the goal", 0.4, "<= 1"},
		{"CPU per 1,000, ten, s", by[burst10][cpuPer1000], "the goal", 1, "<= 1"},
		{"confirmed per second, 1,000 submitters", by[subs1000][confirmedPerS], "one submitter", by[burst1][confirmedPerS], ">= 0.7"},
		{"CPU per 1,000, 1,000 submitters, s", by[subs1000][cpuPer1000], "one submitter", by[burst1][cpuPer1000], "<= 2"},
		{"confirmed per second, 100 submitters", by[subs100][confirmedPerS], "one submitter", by[burst1][confirmedPerS], ">= 0.7"},
		{"CPU per 1,000 at 30 a second, s", by[steady][cpuPer1000], "the goal", 4, "<= 1"},
		{"a refused create's CPU", by[fullQueue][refusedCPU], "an accepted one's", 1, "<= 1"},
		{"creates beside 16 that are refused", by[fullQueue][neighbour], "alone", 1, ">= 0.9"},
		{"transfers per second", by[transfersMany][transferPerS], "the goal", 2000, ">= 1"},
		{"write-ahead log of a transaction, KB", by[burst1][walPerTx], "the goal", 4, "<= 1"},
		{"accept to broadcast at 30 a second, p50, s", by[steady][broadcastP50], "the goal", 0.008, "<= 1"},
		{"steady: accept to CONFIRMED, p50, s", by[steady][p50], "the goal", 0.7, "<= 1"},
		{"steady: accept to CONFIRMED, p99, s", by[steady][p99], "the goal", 1.3, "<= 1"},
		{"strict window 1: transactions per block", by[strict][perBlock], "1 per 2 blocks", 0.5, ">= 0.95"},
		{"CPU per 1,000, 100,000 finished rows", by[finished100k][cpuPer1000], "none", by[burst1][cpuPer1000], "<= 1.2"},
		{"CPU per 1,000, 1,000,000 finished rows", by[finished1M][cpuPer1000], "none", by[burst1][cpuPer1000], "<= 1.2"},
		{"accept to broadcast, idle, p50, s", by[sequential][broadcastP50], "one dispatch", by[baselineTasks][dispatchP50], "+ 0.05 s"},
	}
}

func printSpeed(out io.Writer, by map[string]figures) {
	rows := slices.DeleteFunc(speedRows(by), func(r speedRow) bool { return r.ours == 0 || r.possible == 0 })
	if len(rows) == 0 {
		return
	}
	fmt.Fprintln(out, "\nSpeed")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tours\tagainst\tthat is\tratio\twanted\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", r.name, number(r.ours), r.against, number(r.possible), r.verdict(), r.wanted)
	}
	w.Flush()
}
