locals {
  run = "monitored_resource=\"cloud_run_revision\",service_name=~\"${var.name}-.*\""

  charts = concat([
    { title = "Creates a second", query = "sum by (result) (rate(fencepost_tx_create_total[5m]))" },
    { title = "Final a second", query = "sum by (result) (rate(fencepost_finality_total[5m]))" },
    { title = "Signatures a second", query = "sum by (signer, result) (rate(fencepost_tx_sign_total[5m]))" },
    { title = "Failed checks of intents' MACs a second", query = "sum by (result) (rate(fencepost_tx_unproved_total[5m]))" },
    { title = "Milliseconds to a signature", query = "sum by (signer) (rate(fencepost_tx_sign_seconds_total[5m])) / sum by (signer) (rate(fencepost_tx_sign_total[5m]))" },
    { title = "Broadcasts and repetitions a second", query = "sum(rate(fencepost_tx_submit_total[5m])) or sum(rate(fencepost_tx_resubmit_total[5m]))" },
    { title = "Replacements at a higher fee a second", query = "sum(rate(fencepost_gas_bump_total[5m]))" },
    { title = "What they may cost more, in gwei a second", query = "sum(rate(fencepost_gas_bump_extra_gwei_total[5m]))" },
    { title = "Replacements that a bound forbids", query = "max(fencepost_gas_bump_held)" },
    { title = "Diagnoses a second", query = "sum by (signal) (rate(fencepost_mempool_diagnosis_total[5m]))" },
    { title = "Intents that wait", query = "max(fencepost_queue_depth)" },
    { title = "Intents that are held", query = "max(fencepost_held_intents)" },
    { title = "Oldest held intent, seconds", query = "max(fencepost_held_age_seconds)" },
    { title = "Fullest queue, of its bound", query = "max(fencepost_queue_fullness_ratio)" },
    { title = "Sent, without a receipt", query = "max(fencepost_receipt_backlog)" },
    { title = "Transactions that are STUCK", query = "max(fencepost_stuck_transactions)" },
    { title = "Oldest nonce held, in seconds", query = "max(fencepost_in_flight_age_seconds)" },
    { title = "Heads of queues that wait too long, by cause", query = "max by (cause) (fencepost_queue_blocked_heads{overdue=\"true\"})" },
    { title = "Queues that wait for funds, and for lower fees", query = "max(fencepost_balance_waiting_submitters) or max(fencepost_fee_waiting_submitters)" },
    { title = "Balances, in gwei", query = "max by (submitter) (fencepost_submitter_balance_gwei)" },
    { title = "Submitters in PROTECT", query = "max(fencepost_protect_submitters)" },
    { title = "Leases a second", query = "sum by (result) (rate(fencepost_lease_acquire_total[5m]))" },
    { title = "Writes refused by the fence a second", query = "sum by (op) (rate(fencepost_lease_fenced_total[5m]))" },
    { title = "Receipts asked for a second", query = "sum by (result) (rate(fencepost_receipt_check_total[5m]))" },
    { title = "Answers of nodes a second", query = "sum by (chain, node, result) (rate(fencepost_rpc_node_total[5m]))" },
    { title = "Nodes excluded", query = "max by (chain) (fencepost_rpc_nodes_excluded)" },
    { title = "Reorgs seen a second", query = "sum(rate(fencepost_confirmations_new_fork_total[5m]))" },
    { title = "Decisions about STUCK transactions a second", query = "sum by (action) (rate(fencepost_stuck_decision_total[5m]))" },
    ], var.transfers ? [
    { title = "Transfers a second", query = "sum by (state) (rate(fencepost_transfer_total[5m]))" },
    { title = "Longest stuck transfer, in seconds", query = "max by (state) (fencepost_transfer_stuck_seconds)" },
    { title = "Refunds of unknown outcome a second", query = "sum(rate(fencepost_refund_failures_total[5m]))" },
    { title = "Checks of conservation a second", query = "sum by (result) (rate(fencepost_conservation_check_total[5m]))" },
    ] : [], var.events ? [
    { title = "Events told a second", query = "sum by (endpoint, result) (rate(fencepost_event_delivery_total[5m]))" },
    { title = "Submitters with events that wait", query = "max by (endpoint) (fencepost_event_backlog)" },
    { title = "Oldest event that waits, in seconds", query = "max by (endpoint) (fencepost_event_age_seconds)" },
    ] : [], [
    { title = "Requests a second", query = "sum by (service_name) (rate(run_googleapis_com:request_count{${local.run}}[5m]))" },
    { title = "Answers of 5xx a second", query = "sum by (service_name) (rate(run_googleapis_com:request_count{${local.run},response_code_class=\"5xx\"}[5m]))" },
    { title = "Instances", query = "sum by (service_name) (run_googleapis_com:container_instance_count{${local.run}})" },
    { title = "Tasks that wait", query = "sum by (queue_id) (cloudtasks_googleapis_com:queue_depth{monitored_resource=\"cloud_tasks_queue\",queue_id=~\"${var.name}-.*\"})" },
    { title = "Connections to the database", query = "sum(cloudsql_googleapis_com:database_postgresql_num_backends{monitored_resource=\"cloudsql_database\",database_id=\"${var.database_id}\"})" },
  ])
}

resource "google_monitoring_dashboard" "this" {
  dashboard_json = jsonencode({
    displayName = "Fencepost (${var.name})"
    mosaicLayout = {
      columns = 48
      tiles = [for i, chart in local.charts : {
        xPos   = (i % 3) * 16
        yPos   = floor(i / 3) * 12
        width  = 16
        height = 12
        widget = {
          title = chart.title
          xyChart = {
            dataSets = [{
              plotType        = "LINE"
              timeSeriesQuery = { prometheusQuery = chart.query }
            }]
          }
        }
      }]
    }
  })
}
