# The alerts. Each policy is named after its page in docs/runbooks, and links it.
#
# Metrics of the functions are queried in PromQL, by the names in the code. Events that happen once, and those that must
# be reported even if no metric arrives, are found in the log.

locals {
  services = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=~\"^${var.name}-\""

  by_metric = {
    fenced-writes = {
      severity = "WARNING"
      title    = "Fenced writes surge"
      conditions = [{
        title = "More than one write in twenty is refused by the fence"
        promql = join(" and ", [
          "sum(rate(fencepost_lease_fenced_total[10m])) > 0.05 * sum(rate(fencepost_lease_acquire_total[10m]))",
          "sum(increase(fencepost_lease_fenced_total[10m])) > 20",
        ])
        duration = "300s"
      }]
    }
    resubmits = {
      severity = "WARNING"
      title    = "Transactions are sent again and again"
      conditions = [{
        title = "More than one broadcast in five is a repetition"
        promql = join(" and ", [
          "sum(rate(fencepost_tx_resubmit_total[15m])) > 0.2 * sum(rate(fencepost_tx_submit_total[15m]))",
          "sum(increase(fencepost_tx_resubmit_total[15m])) > 10",
        ])
        duration = "300s"
      }]
    }
    signer-failing = {
      severity = "ERROR"
      title    = "A signer gives no answer"
      conditions = [{
        title = "More than half of the signature requests get no valid answer"
        promql = join(" and ", [
          "sum by (signer) (increase(fencepost_tx_sign_total{result=\"unknown\"}[10m])) > 5",
          "sum by (signer) (increase(fencepost_tx_sign_total{result=\"unknown\"}[10m])) > 0.5 * sum by (signer) (increase(fencepost_tx_sign_total[10m]))",
        ])
        duration = "120s"
      }]
    }
    intent-forged = {
      severity = "CRITICAL"
      title    = "An intent in the database differs from the accepted one"
      conditions = [{
        title    = "A MAC or a fingerprint is wrong, or an intent without a MAC was signed"
        promql   = "sum(increase(fencepost_tx_unproved_total{result=~\"forged|unmarked\"}[10m])) > 0"
        duration = "0s"
      }]
    }
    intent-unproved = {
      severity = "ERROR"
      title    = "The MACs of intents cannot be checked"
      conditions = [{
        title    = "A key is missing, or Cloud KMS gives no answer"
        promql   = "sum by (result) (increase(fencepost_tx_unproved_total{result=~\"keyless|unknown\"}[10m])) > 0"
        duration = "120s"
      }]
    }
    node-excluded = {
      severity   = "WARNING"
      title      = "A node of a chain is excluded"
      conditions = [{ title = "For a quarter of an hour", promql = "max by (chain) (fencepost_rpc_nodes_excluded) > 0", duration = "900s" }]
    }
    queue-full = {
      severity   = "ERROR"
      title      = "A queue of intents is nearly full"
      conditions = [{ title = "80% of queue.maxPerSubmitter wait", promql = "max(fencepost_queue_fullness_ratio) >= 0.8", duration = "120s" }]
    }
    fee-ceiling = {
      severity   = "WARNING"
      title      = "Fees are above what may be paid"
      conditions = [{ title = "Intents have waited for lower fees for 15 minutes", promql = "max(fencepost_fee_waiting_submitters) > 0", duration = "900s" }]
    }
    waiting = {
      severity   = "ERROR"
      title      = "The head of a queue waits too long"
      conditions = [{ title = "Longer than its cause's limit", promql = "max by (cause) (fencepost_queue_blocked_heads{overdue=\"true\"}) > 0", duration = "120s" }]
    }
    gas-bump-held = {
      severity   = "WARNING"
      title      = "A bound keeps transactions from paying more"
      conditions = [{ title = "For ten minutes", promql = "max(fencepost_gas_bump_held) > 0", duration = "600s" }]
    }
    mempool-lost = {
      severity = "WARNING"
      title    = "Nodes forget transactions"
      conditions = [{
        title    = "More than ten were perhaps lost, or replaced, in 15 minutes"
        promql   = "sum(increase(fencepost_mempool_diagnosis_total{signal=~\"perhaps_.*\"}[15m])) > 10"
        duration = "0s"
      }]
    }
    chain-unread = {
      severity   = "ERROR"
      title      = "Conservation does not read a payer's chain"
      conditions = [{ title = "Not read up to the last final block for half an hour", promql = "max by (chain) (fencepost_conservation_chain_unread_seconds) > 1800", duration = "300s" }]
    }
    held-intents = {
      severity   = "ERROR"
      title      = "Held intents wait for a decision"
      conditions = [{ title = "One has waited for half an hour", promql = "max(fencepost_held_age_seconds) > 1800", duration = "300s" }]
    }
    mark-uncompared = {
      severity   = "ERROR"
      title      = "The database is not compared with its mark"
      conditions = [{ title = "For ten minutes", promql = "max(fencepost_database_mark_uncompared) > 0", duration = "600s" }]
    }
    in-flight-age = {
      severity   = "WARNING"
      title      = "A nonce has been held for long"
      conditions = [{ title = "Longer than ${var.in_flight_seconds} s", promql = "max(fencepost_in_flight_age_seconds) > ${var.in_flight_seconds}", duration = "120s" }]
    }
    metrics-absent = {
      severity   = "ERROR"
      title      = "The functions' metrics do not arrive"
      conditions = [{ title = "No gauge of the sweep for 15 minutes", promql = "absent(fencepost_protect_submitters)", duration = "900s" }]
    }
  }

  # Told for as long as it lasts where there are metrics; and in any case when it begins, by the log, since metrics go a
  # longer way.
  by_both = {
    protect = {
      severity = "CRITICAL"
      title    = "A submitter is in PROTECT"
      promql   = "max(fencepost_protect_submitters) > 0"
      filter   = "jsonPayload.message=~\"^PROTECT: \""
    }
    stuck = {
      severity = "ERROR"
      title    = "A transaction is STUCK"
      promql   = "max(fencepost_stuck_transactions) > 0"
      filter   = "jsonPayload.message=\"transaction changed state\" AND jsonPayload.state=\"STUCK\""
    }
    balance = {
      severity = "ERROR"
      title    = "An account cannot pay"
      promql   = "max(fencepost_balance_waiting_submitters) > 0"
      filter   = "jsonPayload.message=\"transaction changed state\" AND jsonPayload.waitCause=\"BALANCE\""
    }
  }

  receipts_grow = {
    title    = "More than twice as many wait for a receipt as half an hour ago"
    promql   = "max(fencepost_receipt_backlog) > 500 and max(fencepost_receipt_backlog) > 2 * max(fencepost_receipt_backlog offset 30m)"
    duration = "600s"
  }

  policy_refuses = {
    title    = "More than ${var.refused_requests} intents in five minutes are beyond a policy"
    promql   = "sum(increase(fencepost_request_refused_total{code=~\"POLICY_REFUSED|DAILY_AMOUNT_EXCEEDED|RATE_LIMIT_EXCEEDED\"}[5m])) > ${var.refused_requests}"
    duration = "0s"
  }

  by_platform = {
    receipt-backlog = {
      severity = "WARNING"
      title    = "The receipt backlog grows"
      conditions = concat(var.metrics ? [local.receipts_grow] : [], [
        {
          title     = "Receipt tasks start 30 s late"
          filter    = "resource.type=\"cloud_tasks_queue\" AND resource.labels.queue_id=starts_with(\"${var.queue_prefix}-receipt-\") AND metric.type=\"cloudtasks.googleapis.com/queue/task_attempt_delays\""
          aligner   = "ALIGN_PERCENTILE_95"
          reducer   = "REDUCE_MAX"
          group_by  = []
          above     = 30000 # milliseconds
          threshold = true
          duration  = "600s"
        },
        {
          title     = "Receipt tasks pile up"
          filter    = "resource.type=\"cloud_tasks_queue\" AND resource.labels.queue_id=starts_with(\"${var.queue_prefix}-receipt-\") AND metric.type=\"cloudtasks.googleapis.com/queue/depth\""
          aligner   = "ALIGN_MEAN"
          reducer   = "REDUCE_MAX"
          group_by  = []
          above     = 20000
          threshold = true
          duration  = "600s"
        },
      ])
    }
    refusals = {
      severity = "WARNING"
      title    = "Many requests are refused"
      conditions = concat(var.metrics ? [local.policy_refuses] : [], [{
        title     = "More than ${var.refused_requests} answers of 401 or 403 in five minutes"
        filter    = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=starts_with(\"${var.name}-\") AND metric.type=\"run.googleapis.com/request_count\" AND metric.labels.response_code=one_of(\"401\", \"403\")"
        aligner   = "ALIGN_DELTA"
        reducer   = "REDUCE_SUM"
        group_by  = ["resource.labels.service_name"]
        above     = var.refused_requests
        threshold = true
        duration  = "300s"
      }])
    }
    function-errors = {
      severity = "ERROR"
      title    = "A function answers with errors"
      conditions = [{
        title     = "More than twenty answers of 5xx in five minutes"
        filter    = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=starts_with(\"${var.name}-\") AND metric.type=\"run.googleapis.com/request_count\" AND metric.labels.response_code_class=\"5xx\""
        aligner   = "ALIGN_DELTA"
        reducer   = "REDUCE_SUM"
        group_by  = ["resource.labels.service_name"]
        above     = 20
        threshold = true
        duration  = "300s"
      }]
    }
    unreachable = {
      severity = "CRITICAL"
      title    = "The API cannot be reached from outside"
      conditions = [{
        title     = "From more than one place, for ten minutes"
        filter    = "resource.type=\"uptime_url\" AND metric.type=\"monitoring.googleapis.com/uptime_check/check_passed\" AND metric.labels.check_id=\"${google_monitoring_uptime_check_config.api.uptime_check_id}\""
        aligner   = "ALIGN_NEXT_OLDER"
        reducer   = "REDUCE_COUNT_FALSE"
        group_by  = ["resource.labels.host"]
        above     = 1
        threshold = true
        period    = "600s"
        duration  = "600s"
      }]
    }
    database = {
      severity = "ERROR"
      title    = "The database is at its limits"
      conditions = [
        for c in [
          { title = "80% of its connections", metric = "postgresql/num_backends", reducer = "REDUCE_SUM", above = floor(0.8 * var.max_connections) },
          { title = "90% of its processors", metric = "cpu/utilization", reducer = "REDUCE_MAX", above = 0.9 },
          { title = "85% of its disk", metric = "disk/utilization", reducer = "REDUCE_MAX", above = 0.85 },
          ] : {
          title     = c.title
          filter    = "resource.type=\"cloudsql_database\" AND resource.labels.database_id=\"${var.database_id}\" AND metric.type=\"cloudsql.googleapis.com/database/${c.metric}\""
          aligner   = "ALIGN_MEAN"
          reducer   = c.reducer
          group_by  = []
          above     = c.above
          threshold = true
          duration  = "600s"
        }
      ]
    }
  }

  by_log = merge({
    restored-database = {
      severity = "CRITICAL", title = "The database is not the one that was written last"
      filter   = "jsonPayload.message=~\"^PROTECT on every submitter\""
    }
    admin-act = {
      severity = "WARNING", title = "An operator changes something"
      filter   = "jsonPayload.message=\"an operator calls\""
    }
    carried-out-twice = {
      severity = "CRITICAL", title = "A request was carried out twice"
      filter   = "jsonPayload.message=~\"^a request was carried out twice\""
    }
    }, var.transfers ? {
    transfer-stuck = {
      severity = "CRITICAL", title = "MON-001: withdrawn, and not deposited"
      filter   = "jsonPayload.alert=\"MON-001\""
    }
    refund-failing = {
      severity = "CRITICAL", title = "MON-002: a refund fails again and again"
      filter   = "jsonPayload.alert=\"MON-002\""
    }
    conservation-violated = {
      severity = "CRITICAL", title = "MON-003: conservation is broken, and transfers are halted"
      filter   = "jsonPayload.alert=\"MON-003\""
    }
    unusual-transfers = {
      severity = "WARNING", title = "MON-004: unusually many transfers of one user"
      filter   = "jsonPayload.alert=\"MON-004\""
    }
    payout-blocked = {
      severity = "CRITICAL", title = "A payout waits for an operator"
      filter   = "jsonPayload.message=~\"^a payout waits for an operator\""
    }
  } : {})

  # A job that fails gives too small a count. A job that does not run at all gives none.
  by_job = {
    for job, j in var.jobs : "${job}-missed" => {
      severity = "ERROR"
      title    = "The job ${job} does not run"
      conditions = [
        for absent in [false, true] : {
          title     = absent ? "It was not run" : "It succeeded fewer than ${j.runs} times"
          filter    = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=\"${var.name}-${job}\" AND metric.type=\"run.googleapis.com/request_count\" AND metric.labels.response_code_class=\"2xx\""
          absent    = absent
          threshold = !absent
          aligner   = "ALIGN_DELTA"
          reducer   = "REDUCE_SUM"
          group_by  = []
          below     = j.runs
          period    = j.window
          duration  = absent ? j.window : "0s"
        }
      ]
    }
  }

  # Conditions upon the log, by their policies' names, each with its page.
  logged = merge(
    { for name, p in local.by_log : name => merge(p, { page = name }) },
    { for name, p in local.by_both : "${name}-logged" => merge(p, { page = name, title = "${p.title} (log)" }) },
  )

  by_event = {
    events-late = {
      severity   = "ERROR"
      title      = "An endpoint does not accept its events"
      conditions = [{ title = "One has waited for ten minutes", promql = "max by (endpoint) (fencepost_event_age_seconds) > 600", duration = "120s" }]
    }
  }

  paged = merge(
    var.metrics ? local.by_metric : {},
    var.metrics && var.events ? local.by_event : {},
    { for name, p in local.by_both : name => merge(p, { conditions = [{ title = "At least one", promql = p.promql, duration = "0s" }] }) if var.metrics },
    local.by_platform,
    local.by_job,
  )

  policies = merge(
    { for name, p in local.paged : name => merge(p, { page = name, logged = false }) },
    { for name, p in local.logged : name => {
      severity = p.severity, title = p.title, page = p.page, logged = true, conditions = [{ title = p.title, log = "${local.services} AND ${p.filter}" }]
    } },
  )
}
