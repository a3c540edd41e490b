resource "google_monitoring_alert_policy" "this" {
  for_each = local.policies

  display_name          = "${var.name}: ${each.value.title}"
  severity              = each.value.severity
  combiner              = "OR"
  notification_channels = var.notification_channels

  dynamic "conditions" {
    for_each = each.value.conditions

    content {
      display_name = conditions.value.title

      dynamic "condition_prometheus_query_language" {
        for_each = can(conditions.value.promql) ? [true] : []

        content {
          query               = conditions.value.promql
          duration            = conditions.value.duration
          evaluation_interval = "60s"
          # The first deployment has counted nothing yet, and Monitoring knows no such metric.
          disable_metric_validation = true
        }
      }

      dynamic "condition_matched_log" {
        for_each = can(conditions.value.log) ? [true] : []

        content {
          filter = conditions.value.log
        }
      }

      dynamic "condition_threshold" {
        for_each = try(conditions.value.threshold, false) ? [true] : []

        content {
          filter          = conditions.value.filter
          comparison      = can(conditions.value.above) ? "COMPARISON_GT" : "COMPARISON_LT"
          threshold_value = try(conditions.value.above, conditions.value.below)
          duration        = conditions.value.duration

          aggregations {
            alignment_period     = try(conditions.value.period, "300s")
            per_series_aligner   = conditions.value.aligner
            cross_series_reducer = conditions.value.reducer
            group_by_fields      = conditions.value.group_by
          }
        }
      }

      dynamic "condition_absent" {
        for_each = try(conditions.value.absent, false) ? [true] : []

        content {
          filter   = conditions.value.filter
          duration = conditions.value.duration

          aggregations {
            alignment_period     = "60s"
            per_series_aligner   = conditions.value.aligner
            cross_series_reducer = conditions.value.reducer
          }
        }
      }
    }
  }

  dynamic "alert_strategy" {
    for_each = each.value.logged ? [true] : []

    content {
      auto_close = "1800s"

      notification_rate_limit {
        period = "300s"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Meaning, evidence, steps and warnings: ${var.runbooks_url}/${each.value.page}.md"

    links {
      display_name = "Runbook"
      url          = "${var.runbooks_url}/${each.value.page}.md"
    }
  }
}
