package telemetry

import (
	"strconv"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// What is counted, by the names of the specification. Count with, for example,
//
//	telemetry.TxCreate.Add(ctx, 1, telemetry.Result("created"))
//
// The counts go to the provider that is set with [otel.SetMeterProvider], and
// nowhere until one is set.
var (
	// LeaseAcquire counts tries to take a lease, by [Result]: inserted,
	// renewed, taken_over, not_owner.
	LeaseAcquire = counter("lease_acquire_total", "tries to take a lease")
	// LeaseFenced counts writes that were refused because the lease was no
	// longer held, by [Op].
	LeaseFenced = counter("lease_fenced_total", "writes refused by the fence")
	// TxCreate counts creates, by [Result]: accepted, known, refused, error (whether
	// it was stored is not known).
	TxCreate = counter("tx_create_total", "creates")
	// TxSign counts signatures asked for, by [Signer] and [Result]: signed, unknown.
	TxSign = counter("tx_sign_total", "signatures asked for")
	// TxSignTime is the time that they took together, in milliseconds, by the same
	// labels.
	TxSignTime = counter("tx_sign_milliseconds_total", "time that signatures took")
	// TxUnproved counts intents that were checked before something was signed for them, and
	// are not proved to be what was accepted, by [Result]: forged, keyless, unknown,
	// unmarked (signed all the same).
	TxUnproved = counter("tx_unproved_total", "intents that were not proved to be what was accepted")
	// TxSubmit counts broadcasts, by [Result]: the class of the node's answer.
	TxSubmit = counter("tx_submit_total", "broadcasts")
	// GasBump counts versions that a gas bump made.
	GasBump = counter("gas_bump_total", "replacements at a higher fee")
	// GasBumpExtra is what they may cost beyond the versions before them, together, in
	// billionths of the chain's unit, each rounded down.
	GasBumpExtra = counter("gas_bump_extra_gwei_total", "what replacements may cost beyond what was offered before")
	// MempoolDiagnosis counts diagnoses that differ from the one before, by [Signal]:
	// in_mempool, perhaps_lost, perhaps_replaced.
	MempoolDiagnosis = counter("mempool_diagnosis_total", "new diagnoses of transactions without a receipt")
	// ReceiptCheck counts receipts asked for, by [Result]: found, not_found,
	// error.
	ReceiptCheck = counter("receipt_check_total", "receipts asked for")
	// NodeAnswers counts what was seen of the nodes of a chain that has several, by
	// chain, node and result ([NodeResult]): ok, error, lag, wrong_chain, outvoted.
	NodeAnswers = counter("rpc_node_total", "answers of a chain's nodes")
	// NodesLeftOut is how many nodes of a [Chain] are left out; the sweep sets it.
	NodesLeftOut = gauge("rpc_nodes_left_out", "nodes of a chain that are left out", "{node}")
	// NewFork counts lists of confirming blocks that were replaced.
	NewFork = counter("confirmations_newFork_total", "lists of confirming blocks replaced")
	// TxResubmit counts repeated broadcasts, by [Result]: the class of the node's
	// answer. [TxSubmit] counts them too.
	TxResubmit = counter("tx_resubmit_total", "repeated broadcasts")
	// RequestRefused counts requests, and intents of a batch, that were answered with a
	// problem of the caller's (4xx), by its [Code].
	RequestRefused = counter("request_refused_total", "requests answered with a problem of the caller's")
	// Finality counts transactions that became final, by [Result]: confirmed,
	// reverted, placeholder, displaced, rejected, cancelled.
	Finality = counter("finality_total", "transactions that became final")
	// StuckDecision counts decisions on stuck transactions, by people or by code, by
	// [Action]: wait, rebroadcast, replace, placeholder.
	StuckDecision = counter("stuck_decision_total", "decisions on stuck transactions")
	// Transfers counts what transfers have come to, by [State]: once for each
	// state that a transfer enters.
	Transfers = counter("transfer_total", "states that transfers entered")
	// TransferStuck is for how long the transfer that has been alarming for longest
	// has been in its [State], in seconds; the sweep sets it.
	TransferStuck = gauge("transfer_stuck_seconds", "time in its state of the longest stuck transfer", "s")
	// RefundFailures counts refunds whose outcome is unknown.
	RefundFailures = counter("refund_failures_total", "refunds whose outcome is unknown")
	// ConservationCheck counts checks of conservation, by [Result]: ok, standing,
	// violated, error.
	ConservationCheck = counter("conservation_check_total", "checks of conservation")
	// ChainUnread is for how long the payer that is farthest behind was not read up to
	// the last final block, by [Chain]; the check of conservation sets it.
	ChainUnread = gauge("conservation_chain_unread_seconds", "time since all final blocks of the payer farthest behind were read", "s")
	// QueueDepth is how many intents wait for a nonce; the sweep sets it.
	QueueDepth = gauge("queue_depth", "intents waiting for a nonce", "{intent}")

	// HeldIntents is how many intents get no nonce until their caller or an operator
	// decides; the sweep sets it.
	HeldIntents = gauge("held_intents", "intents held after a restore", "{intent}")

	// HeldAge is for how long the held intent that was left alone for longest has waited,
	// in seconds; the sweep sets it.
	HeldAge = gauge("held_age_seconds", "time that the oldest held intent has waited", "s")
	// QueueFullness is how near the fullest queue is to its bound, from 0 to 1; the
	// sweep sets it.
	QueueFullness = ratio("queue_fullness_ratio", "fullest queue, as a part of its bound")
	// InFlightAge is how long the oldest transaction has held its nonce, in
	// seconds; the sweep sets it.
	InFlightAge = gauge("in_flight_age_seconds", "age of the oldest held nonce", "s")
	// ProtectSubmitters is how many submitters are in PROTECT; the sweep sets it.
	ProtectSubmitters = gauge("protect_submitters", "submitters in PROTECT", "{submitter}")
	// StuckTransactions is how many transactions are STUCK; the sweep sets it.
	StuckTransactions = gauge("stuck_transactions", "transactions that wait for a decision", "{transaction}")
	// ReceiptBacklog is how many transactions were sent and have no receipt yet; the
	// sweep sets it.
	ReceiptBacklog = gauge("receipt_backlog", "transactions sent, without a receipt", "{transaction}")
	// BalanceWaiting is how many submitters have an intent that waits for the account to
	// be funded; the sweep sets it.
	BalanceWaiting = gauge("balance_waiting_submitters", "submitters whose queue waits for funds", "{submitter}")
	// FeeWaiting is how many submitters have an intent that waits for lower fees; the
	// sweep sets it.
	FeeWaiting = gauge("fee_waiting_submitters", "submitters whose queue waits for lower fees", "{submitter}")
	// MarkUncompared is 1 while the database cannot be compared with the mark outside it,
	// by the sweep.
	MarkUncompared = gauge("authority_mark_uncompared", "1 while the database cannot be compared with the mark outside it", "{mark}")
	// GasBumpHeld is how many transactions would be replaced at a higher fee but for a
	// bound; the sweep sets it.
	GasBumpHeld = gauge("gas_bump_held", "transactions whose replacement a bound forbids", "{transaction}")
	// SubmitterBalance is what a [Submitter]'s account has, in billionths of the chain's
	// unit, rounded down; the sweep sets it where telemetry.balances asks for it.
	SubmitterBalance = gauge("submitter_balance_gwei", "balance of a submitter", "{gwei}")
	// EventDelivery counts events that a [Receiver] was told of, by [Result]: taken,
	// failed.
	EventDelivery = counter("event_delivery_total", "events that receivers were told of")
	// EventBacklog is how many submitters have events that a [Receiver] has not taken;
	// the sweep sets it.
	EventBacklog = gauge("event_backlog", "submitters with events that wait", "{submitter}")
	// EventAge is for how long the oldest event that a [Receiver] has not taken has
	// waited, in seconds; the sweep sets it.
	EventAge = gauge("event_age_seconds", "age of the oldest event that waits", "s")
)

// Result is the label result of a count.
func Result(value string) metric.MeasurementOption { return label("result", value) }

// Code is the label code of a count: a problem's code.
func Code(name string) metric.MeasurementOption { return label("code", name) }

// Signer is the label signer of a count: its kind, as local, kms or remote.
func Signer(kind string) metric.MeasurementOption { return label("signer", kind) }

// Receiver is the label receiver of an event's metric: the receiver's name.
func Receiver(name string) metric.MeasurementOption { return label("receiver", name) }

// EventResult are the labels of [EventDelivery].
func EventResult(receiver, result string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("receiver", receiver), attribute.String("result", result))
}

// Signal is the label signal of a count: what a diagnosis said.
func Signal(value string) metric.MeasurementOption { return label("signal", value) }

// Submitter is the label submitter of a gauge: its account id. What has it is bounded
// by a setting: each is a series of its own.
func Submitter(value string) metric.MeasurementOption { return label("submitter", value) }

// Op is the label op of a count: the write that was tried.
func Op(value string) metric.MeasurementOption { return label("op", value) }

// Action is the label action of a count: what was decided.
func Action(value string) metric.MeasurementOption { return label("action", value) }

// State is the label state of a transfer's metric: the state's name.
func State(value string) metric.MeasurementOption { return label("state", value) }

// Chain is the label chain of a metric: its EIP-155 id.
func Chain(id uint64) metric.MeasurementOption { return label("chain", strconv.FormatUint(id, 10)) }

// NodeResult are the labels of a node's answer: chain, node (its name, without
// credentials) and result.
func NodeResult(chain uint64, node, result string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("chain", strconv.FormatUint(chain, 10)), attribute.String("node", node), attribute.String("result", result))
}

func label(name, value string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String(name, value))
}

func meter() metric.Meter { return otel.Meter(Scope) }

func counter(name, description string) metric.Int64Counter {
	c, err := meter().Int64Counter(name, metric.WithDescription(description))
	if err != nil {
		otel.Handle(err) // c counts nothing, and can be used
	}
	return c
}

func gauge(name, description, unit string) metric.Int64Gauge {
	g, err := meter().Int64Gauge(name, metric.WithDescription(description), metric.WithUnit(unit))
	if err != nil {
		otel.Handle(err) // g shows nothing, and can be used
	}
	return g
}

func ratio(name, description string) metric.Float64Gauge {
	g, err := meter().Float64Gauge(name, metric.WithDescription(description), metric.WithUnit("1"))
	if err != nil {
		otel.Handle(err) // g shows nothing, and can be used
	}
	return g
}
