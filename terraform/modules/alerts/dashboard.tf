locals {
  run = "monitored_resource=\"cloud_run_revision\",service_name=~\"${var.name}-.*\""

  # The functions' own metrics: go test ./shared/telemetry/dashboard -update writes the file.
  parts = concat([""], var.transfers ? ["transfers"] : [], var.events ? ["events"] : [])
  own   = [for c in jsondecode(file("${path.module}/charts.json")) : c if contains(local.parts, c.part)]

  platform = [
    { title = "Requests a second", queries = ["sum by (service_name) (rate(run_googleapis_com:request_count{${local.run}}[5m]))"] },
    { title = "Answers of 5xx a second", queries = ["sum by (service_name) (rate(run_googleapis_com:request_count{${local.run},response_code_class=\"5xx\"}[5m]))"] },
    { title = "Instances", queries = ["sum by (service_name) (run_googleapis_com:container_instance_count{${local.run}})"] },
    { title = "Tasks that wait", queries = ["sum by (queue_id) (cloudtasks_googleapis_com:queue_depth{monitored_resource=\"cloud_tasks_queue\",queue_id=~\"${var.queue_prefix}-.*\"})"] },
    { title = "Connections to the database", queries = ["sum(cloudsql_googleapis_com:database_postgresql_num_backends{monitored_resource=\"cloudsql_database\",database_id=\"${var.database_id}\"})"] },
  ]

  charts = concat([for c in local.own : { title = c.title, queries = c.queries }], local.platform)
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
            dataSets = [for query in chart.queries : {
              plotType        = "LINE"
              timeSeriesQuery = { prometheusQuery = query }
            }]
          }
        }
      }]
    }
  })
}
