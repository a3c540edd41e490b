package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/emulator/stack/steps"
)

// Keys of the figures in the JSON. Counts per transaction exclude create, which has its own keys.
const (
	acceptedPerS   = "accepted_per_s"  // over the time of posting
	sentPerS       = "sent_per_s"      // signed, stored and broadcast: from the first post to the last stored broadcast
	confirmedPerS  = "confirmed_per_s" // from the first post to the last confirmed_at
	sqlPerTx       = "sql_per_tx"      // round trips
	statementPerTx = "sql_statements_per_tx"
	rpcPerTx       = "rpc_per_tx"         // HTTP round trips to the node
	invocPerTx     = "invocations_per_tx" // of functions
	commitsPerTx   = "commits_per_tx"
	tasksPerTx     = "tasks_per_tx"   // created
	cpuPer1000     = "cpu_s_per_1000" // functions and Postgres, creates included
	cpuFunctions   = "cpu_functions_s_per_1000"
	cpuPostgres    = "cpu_postgres_s_per_1000"
	cpuLoad        = "cpu_load_s_per_1000" // not part of other figures
	cpuBench       = "cpu_node_and_emulator_s_per_1000"
	p50            = "p50_s" // accepted to CONFIRMED, by the database's clock
	p99            = "p99_s"
	broadcastP50   = "accept_to_broadcast_p50_s"
	createP50      = "create_p50_s" // measured by the caller
	createP99      = "create_p99_s"
	createSQL      = "create_sql_per_tx"
	createInvoc    = "create_invocations_per_tx"
	createCommits  = "create_commits_per_tx"
	createTasks    = "create_tasks_per_tx"
	perBlock       = "transactions_per_block"
	insertsPerS    = "inserts_per_s"
	dispatchP50    = "dispatch_p50_s"
	walPerTx       = "wal_kb_per_tx"             // of the write-ahead log, creates included, without full-page images
	walImages      = "wal_page_images_kb_per_tx" // full-page images: one for each page after a checkpoint
	refusedCPU     = "refused_create_cpu_ratio"  // CPU of a refused create over that of an accepted one
	refusedPerS    = "refused_per_s"             // refused creates answered per second, alone
	neighbour      = "neighbour_ratio"           // accepted per second beside 16 refused clients over alone
	transferPerS   = "transfers_per_s"
	transferP50    = "transfer_p50_s" // measured by the caller
	transferP99    = "transfer_p99_s"
	transferSQL    = "transfer_sql_per_tx"
	transferCommit = "transfer_commits_per_tx"
	transactions   = "transactions"
)

// figures are the measured values of one run, or the medians of several.
type figures map[string]float64

type result struct {
	figures
	latencies []float64 // accepted to CONFIRMED, in seconds
}

func (r result) line() string {
	var parts []string
	for _, key := range []string{insertsPerS, acceptedPerS, sentPerS, confirmedPerS, transferPerS, refusedCPU, neighbour, cpuPer1000, walPerTx, sqlPerTx, p50, p99, perBlock} {
		if v, ok := r.figures[key]; ok {
			parts = append(parts, fmt.Sprintf("%s %.3g", key, v))
		}
	}
	return strings.Join(parts, ", ")
}

type measurement struct {
	scenario scenario
	runs     []result
}

func (m measurement) median() figures {
	sum := figures{}
	for _, one := range m.runs {
		for key := range one.figures {
			var values []float64
			for _, r := range m.runs {
				values = append(values, r.figures[key])
			}
			sum[key] = quantile(values, 0.5)
		}
	}
	return sum
}

func (m measurement) latencies() (all []float64) {
	for _, r := range m.runs {
		all = append(all, r.latencies...)
	}
	return all
}

// quantile returns the q-quantile of the values, interpolated; 0 without values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

// writeJSON writes the medians by scenario to the file, unless path is "".
func writeJSON(path string, all []measurement) (err error) {
	defer steps.Return(&err)
	if path == "" {
		return nil
	}
	byName := map[string]figures{}
	for _, m := range all {
		byName[m.scenario.name] = m.median()
		byName[m.scenario.name]["runs"] = float64(len(m.runs))
	}
	text := steps.Value(json.MarshalIndent(byName, "", "  "))
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
