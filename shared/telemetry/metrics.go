package telemetry

import (
	"strconv"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The metrics: the names of the specification after fencepost_, in snake case. Behind each are its labels, whose values
// docs/telemetry.md lists. TxSubmit also counts what TxResubmit counts. Count with, for example,
//
//	telemetry.TxCreate.Add(ctx, 1, telemetry.Result("accepted"))
//
// The counts go to the provider that is set with [otel.SetMeterProvider]. Without one they are dropped.
var (
	LeaseAcquire      = counter("fencepost_lease_acquire_total", "tries to take a lease")              // [Result]
	LeaseFenced       = counter("fencepost_lease_fenced_total", "writes refused by the fence")         // [Op]
	TxCreate          = counter("fencepost_tx_create_total", "creates")                                // [Result]
	TxSign            = counter("fencepost_tx_sign_total", "signatures asked for")                     // [Signer], [Result]
	TxSignTime        = seconds("fencepost_tx_sign_seconds_total", "time that signatures took")        // [Signer], [Result]
	TxUnproved        = counter("fencepost_tx_unproved_total", "intents whose MAC did not prove them") // [Result]
	TxSubmit          = counter("fencepost_tx_submit_total", "broadcasts")                             // [Result]
	GasBump           = counter("fencepost_gas_bump_total", "replacements at a higher fee")
	GasBumpExtra      = counter("fencepost_gas_bump_extra_gwei_total", "maximum additional cost of replacements")
	MempoolDiagnosis  = counter("fencepost_mempool_diagnosis_total", "new diagnoses of transactions without a receipt") // [Signal]
	ReceiptCheck      = counter("fencepost_receipt_check_total", "receipts asked for")                                  // [Result]
	NodeAnswers       = counter("fencepost_rpc_node_total", "answers of a chain's nodes")                               // [NodeResult]
	NewFork           = counter("fencepost_confirmations_new_fork_total", "lists of confirming blocks replaced")
	TxResubmit        = counter("fencepost_tx_resubmit_total", "repeated broadcasts")                                  // [Result]
	RequestRefused    = counter("fencepost_request_refused_total", "requests answered with a problem of the caller's") // [Code]
	Finality          = counter("fencepost_finality_total", "transactions that became final")                          // [Result]
	StuckDecision     = counter("fencepost_stuck_decision_total", "decisions on stuck transactions")                   // [Action]
	Transfers         = counter("fencepost_transfer_total", "states that transfers entered")                           // [State]
	RefundFailures    = counter("fencepost_refund_failures_total", "refunds whose outcome is unknown")
	ConservationCheck = counter("fencepost_conservation_check_total", "checks of conservation")               // [Result]
	EventDelivery     = counter("fencepost_event_delivery_total", "events delivered to endpoints, by result") // [EventResult]
	BuildInfo         = last("fencepost_build_info", "build of the process", "{build}")                       // [Build]
	GaugeFailures     = counter("fencepost_gauge_failures_total", "queries of gauges that failed")            // [Query]

	// RPCTime counts once for each method of a batch.
	TxQueueWait     = histogram("fencepost_queue_wait_seconds", "time from acceptance to a nonce", txTimes)                        // [Chain]
	TxBroadcastTime = histogram("fencepost_tx_broadcast_seconds", "time from acceptance to the first accepted broadcast", txTimes) // [Chain]
	TxFinalTime     = histogram("fencepost_tx_final_seconds", "time from acceptance to the end of a transaction", txTimes)         // [Result]
	HTTPTime        = histogram("fencepost_http_request_seconds", "time of an HTTP request", callTimes)                            // [Invoked]
	RPCTime         = histogram("fencepost_rpc_seconds", "time of a round trip to a node that has the method", callTimes)          // [Method]
	SQLTime         = histogram("fencepost_sql_round_trip_seconds", "time of a round trip to the database", callTimes)
)

// The gauges. They are true of the whole deployment, and the sweep sets them. A time is in seconds.
var (
	QueueDepth        = gauge("fencepost_queue_depth", "intents waiting for a nonce", "{intent}")
	QueueFullness     = gauge("fencepost_queue_fullness_ratio", "fullest queue, as a part of its bound", "1")
	InFlightAge       = gauge("fencepost_in_flight_age_seconds", "age of the oldest held nonce", "s")
	ProtectSubmitters = gauge("fencepost_protect_submitters", "submitters in PROTECT", "{submitter}")
	StuckTransactions = gauge("fencepost_stuck_transactions", "transactions that wait for a decision", "{transaction}")
	ReceiptBacklog    = gauge("fencepost_receipt_backlog", "transactions sent, without a receipt", "{transaction}")
	BalanceWaiting    = gauge("fencepost_balance_waiting_submitters", "submitters whose queue waits for funds", "{submitter}")
	FeeWaiting        = gauge("fencepost_fee_waiting_submitters", "submitters whose queue waits for lower fees", "{submitter}")
	MarkUncompared    = gauge("fencepost_database_mark_uncompared", "1 while the database cannot be compared with the mark outside it", "{mark}")
	GasBumpHeld       = gauge("fencepost_gas_bump_held", "transactions whose replacement a bound forbids", "{transaction}")
	TransferHalts     = gauge("fencepost_transfer_halts", "halts of transfers that stand", "{halt}")
	HeldIntents       = gauge("fencepost_held_intents", "intents held after a restore", "{intent}")
	HeldAge           = gauge("fencepost_held_age_seconds", "time that the oldest held intent has waited", "s")

	// By the database's clock, since 1970.
	SweepTime = gauge("fencepost_sweep_timestamp_seconds", "when the sweep began that read the gauges", "s")

	// By [Chain].
	NodesExcluded = gauge("fencepost_rpc_nodes_excluded", "nodes of a chain that are excluded", "{node}")
	ChainUnread   = gauge("fencepost_conservation_chain_unread_seconds", "time since all final blocks of the payer farthest behind were read", "s")

	// SubmitterBalance is in billionths of the chain's unit, rounded down, if telemetry.balances selects the submitter.
	TransferStuck    = gauge("fencepost_transfer_stuck_seconds", "time in its state of the longest stuck transfer", "s")             // [State]
	BlockedHeads     = gauge("fencepost_queue_blocked_heads", "intents that wait at the head of a queue", "{intent}")                // [Blocked]
	SubmitterBalance = gauge("fencepost_submitter_balance_gwei", "balance of a submitter", "{gwei}")                                 // [Submitter]
	EventBacklog     = gauge("fencepost_event_backlog", "submitters with events that wait", "{submitter}")                           // [Endpoint]
	EventAge         = gauge("fencepost_event_age_seconds", "age of the oldest event that waits", "s")                               // [Endpoint]
	EndpointPaused   = gauge("fencepost_event_endpoint_paused_seconds", "time since the deliveries to an endpoint were paused", "s") // [Endpoint]
)

// Invoked returns the labels of [HTTPTime]: the function, and the HTTP status of its answer.
func Invoked(function string, status int) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("function", function), attribute.Int("status", status))
}

// Build returns the labels of [BuildInfo].
func Build(version, revision string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("version", version), attribute.String("revision", revision))
}

// Labels of one name. Each takes the value.
var (
	Query    = label("query")  // what gauges were to be read
	Method   = label("method") // of a JSON-RPC call
	Result   = label("result")
	Code     = label("code")     // a problem's code
	Signer   = label("signer")   // its kind, such as local, kms or remote
	Endpoint = label("endpoint") // the endpoint's name
	Signal   = label("signal")   // the result of a diagnosis
	Op       = label("op")       // the attempted write
	Action   = label("action")   // the decision
	State    = label("state")    // a transfer's state

	// Submitter is an account id. Each value is a series, so a setting bounds the submitters with this label.
	Submitter = label("submitter")
)

// EventResult returns the labels of [EventDelivery].
func EventResult(endpoint, result string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("endpoint", endpoint), attribute.String("result", result))
}

// Blocked returns the labels of [BlockedHeads]: the cause, and whether the wait exceeds its limit.
func Blocked(cause string, overdue bool) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("cause", cause), attribute.Bool("overdue", overdue))
}

// Chain returns the label chain: the EIP-155 id.
func Chain(id uint64) metric.MeasurementOption { return label("chain")(strconv.FormatUint(id, 10)) }

// NodeResult returns the labels of a node's answer: chain, node (its name without credentials) and
// result.
func NodeResult(chain uint64, node, result string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("chain", strconv.FormatUint(chain, 10)), attribute.String("node", node), attribute.String("result", result))
}

// label returns the function that makes the label of that name.
func label(name string) func(value string) metric.MeasurementOption {
	return func(value string) metric.MeasurementOption {
		return metric.WithAttributes(attribute.String(name, value))
	}
}

func meter() metric.Meter { return otel.Meter(Scope) }

// made is the instrument. With an error it shows nothing, and can be used.
func made[T any](instrument T, err error) T {
	if err != nil {
		otel.Handle(err)
	}
	return instrument
}

func counter(name, description string) metric.Int64Counter {
	return made(meter().Int64Counter(name, metric.WithDescription(description)))
}

// seconds is a counter of time.
func seconds(name, description string) metric.Float64Counter {
	return made(meter().Float64Counter(name, metric.WithDescription(description), metric.WithUnit("s")))
}

// last is a gauge of this process, which shows the value that it was given last.
func last(name, description, unit string) metric.Int64Gauge {
	return made(meter().Int64Gauge(name, metric.WithDescription(description), metric.WithUnit(unit)))
}

// The bounds of histograms, in seconds: of one call, and of a transaction.
var (
	callTimes = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
	txTimes   = []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 21600, 86400}
)

func histogram(name, description string, bounds []float64) metric.Float64Histogram {
	return made(meter().Float64Histogram(name, metric.WithDescription(description), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(bounds...)))
}
