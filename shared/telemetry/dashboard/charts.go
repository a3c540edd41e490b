// Package dashboard lists the charts that an operator looks at, and writes them for Grafana and for Cloud
// Monitoring.
package dashboard

// Row is a group of charts about one subject.
type Row struct {
	Title  string
	Part   Part
	Charts []Chart
}

// Chart shows one or more queries over time.
type Chart struct {
	Title   string
	Unit    Unit
	Queries []Query
}

// Query is a PromQL query, in which [5m] stands for the window of a rate.
type Query struct {
	Name   string // tells the queries of a chart apart; "": there is one
	PromQL string
	By     []string // the labels of its series
}

// Unit is the unit of a chart's values, as Grafana names it.
type Unit string

// The units.
const (
	PerSecond Unit = "ops"
	Seconds   Unit = "s"
	Count     Unit = "short"
	Share     Unit = "percentunit"
)

// Part is a part that not every deployment has.
type Part string

// The parts.
const (
	Everywhere Part = ""
	Transfers  Part = "transfers"
	Events     Part = "events"
)

// Rows are all charts, in the order in which an operator looks at them.
var Rows = []Row{
	{"Traffic", Everywhere, []Chart{
		{"Accepted, broadcast and final", PerSecond, []Query{
			{"accepted", `sum(rate(fencepost_tx_create_total{result="accepted"}[5m]))`, nil},
			{"broadcast", `sum(rate(fencepost_tx_broadcast_seconds_count[5m]))`, nil},
			{"final", `sum(rate(fencepost_finality_total[5m]))`, nil},
		}},
		rateBy("Creates", "fencepost_tx_create_total", "result"),
		rateBy("Final", "fencepost_finality_total", "result"),
		rateBy("Requests refused", "fencepost_request_refused_total", "code"),
		rateBy("HTTP requests", "fencepost_http_request_seconds_count", "function", "status"),
		rateBy("Signatures", "fencepost_tx_sign_total", "signer", "result"),
	}},
	{"Latency", Everywhere, []Chart{
		quantiles("Accepted to broadcast", "fencepost_tx_broadcast_seconds_bucket", "chain"),
		quantiles("Accepted to final", `fencepost_tx_final_seconds_bucket{result="confirmed"}`),
		quantiles("Accepted to nonce", "fencepost_queue_wait_seconds_bucket", "chain"),
		quantiles("HTTP requests, by function", "fencepost_http_request_seconds_bucket", "function"),
		quantiles("Calls to nodes, by method", "fencepost_rpc_seconds_bucket", "method"),
		quantiles("Round trips to Postgres", "fencepost_sql_round_trip_seconds_bucket"),
		{"Mean time of a signature", Seconds, []Query{
			{"", `sum by (signer) (rate(fencepost_tx_sign_seconds_total[5m])) / sum by (signer) (rate(fencepost_tx_sign_total[5m]))`, []string{"signer"}},
		}},
	}},
	{"Queues", Everywhere, []Chart{
		gauge("Intents that wait for a nonce", Count, "fencepost_queue_depth"),
		gauge("Longest queue, as a share of its bound", Share, "fencepost_queue_fullness_ratio"),
		gauge("Heads of queues that wait, by cause", Count, `fencepost_queue_blocked_heads{overdue="false"}`, "cause"),
		gauge("Heads of queues that wait too long, by cause", Count, `fencepost_queue_blocked_heads{overdue="true"}`, "cause"),
		{"Submitters that wait for coin or lower fees", Count, []Query{
			{"coin", `max(fencepost_balance_waiting_submitters)`, nil},
			{"lower fees", `max(fencepost_fee_waiting_submitters)`, nil},
		}},
		gauge("Balances, in gwei", Count, "fencepost_submitter_balance_gwei", "submitter"),
	}},
	{"Waits for a person", Everywhere, []Chart{
		{"PROTECT, STUCK and halts", Count, []Query{
			{"submitters in PROTECT", `max(fencepost_protect_submitters)`, nil},
			{"STUCK transactions", `max(fencepost_stuck_transactions)`, nil},
			{"halts of transfers", `max(fencepost_transfer_halts)`, nil},
		}},
		gauge("Held intents", Count, "fencepost_held_intents"),
		gauge("Longest held intent", Seconds, "fencepost_held_age_seconds"),
		rateBy("Decisions about STUCK transactions", "fencepost_stuck_decision_total", "action"),
		rateBy("Failed checks of intents' MACs", "fencepost_tx_unproved_total", "result"),
		gauge("Mark outside the database not compared", Count, "fencepost_database_mark_uncompared"),
	}},
	{"Fees and inclusion", Everywhere, []Chart{
		gauge("Oldest open nonce", Seconds, "fencepost_in_flight_age_seconds"),
		gauge("Sent, without a receipt", Count, "fencepost_receipt_backlog"),
		{"Broadcasts and repetitions", PerSecond, []Query{
			{"broadcasts", `sum by (result) (rate(fencepost_tx_submit_total[5m]))`, []string{"result"}},
			{"repetitions", `sum by (result) (rate(fencepost_tx_resubmit_total[5m]))`, []string{"result"}},
		}},
		rateBy("Gas bumps", "fencepost_gas_bump_total"),
		rateBy("Maximum additional cost of gas bumps, in gwei", "fencepost_gas_bump_extra_gwei_total"),
		gauge("Gas bumps that a bound prevents", Count, "fencepost_gas_bump_held"),
		rateBy("New mempool diagnoses", "fencepost_mempool_diagnosis_total", "signal"),
		rateBy("Receipts asked for", "fencepost_receipt_check_total", "result"),
		rateBy("Reorgs seen", "fencepost_confirmations_new_fork_total"),
	}},
	{"Transfers", Transfers, []Chart{
		rateBy("States that transfers entered", "fencepost_transfer_total", "state"),
		gauge("Longest late transfer", Seconds, "fencepost_transfer_stuck_seconds", "state"),
		rateBy("Refunds without an answer", "fencepost_refund_failures_total"),
		rateBy("Checks of conservation", "fencepost_conservation_check_total", "result"),
		gauge("Payers' chains not read up to the last final block", Seconds, "fencepost_conservation_chain_unread_seconds", "chain"),
	}},
	{"Webhooks and Pub/Sub", Events, []Chart{
		rateBy("Deliveries", "fencepost_event_delivery_total", "endpoint", "result"),
		gauge("Submitters with undelivered events", Count, "fencepost_event_backlog", "endpoint"),
		gauge("Oldest undelivered event", Seconds, "fencepost_event_age_seconds", "endpoint"),
		gauge("Time since an endpoint was paused", Seconds, "fencepost_event_endpoint_paused_seconds", "endpoint"),
	}},
	{"Nodes", Everywhere, []Chart{
		rateBy("Answers of nodes", "fencepost_rpc_node_total", "chain", "node", "result"),
		rateBy("Answers of nodes that lag", `fencepost_rpc_node_total{result="lag"}`, "chain", "node"),
		gauge("Excluded nodes", Count, "fencepost_rpc_nodes_excluded", "chain"),
		rateBy("Calls to nodes", "fencepost_rpc_seconds_count", "method"),
	}},
	{"Database, leases and the sweep", Everywhere, []Chart{
		rateBy("Round trips to Postgres", "fencepost_sql_round_trip_seconds_count"),
		rateBy("Leases", "fencepost_lease_acquire_total", "result"),
		rateBy("Writes refused by the fence", "fencepost_lease_fenced_total", "op"),
		{"Time since the last sweep", Seconds, []Query{{"", `time() - max(fencepost_sweep_timestamp_seconds)`, nil}}},
		rateBy("Queries of gauges that failed", "fencepost_gauge_failures_total", "query"),
		{"Processes, by version", Count, []Query{{"", `count by (version) (fencepost_build_info)`, []string{"version"}}}},
	}},
}
