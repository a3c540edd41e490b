# The only check from outside: name, certificate, load balancer, Cloud Armor and a function. The function answers 401 to
# a request without a token; no other part does.
resource "google_monitoring_uptime_check_config" "api" {
  display_name = "${var.name}: the API from outside"
  timeout      = "10s"
  # Google asks from several places, in each of them once within this time. More often, the answers of 401 would count
  # among the refusals.
  period = "300s"

  http_check {
    path         = "/api/v1/tx/none"
    port         = 443
    use_ssl      = true
    validate_ssl = true

    accepted_response_status_codes {
      status_value = 401
    }
  }

  monitored_resource {
    type   = "uptime_url"
    labels = { project_id = var.project, host = var.host }
  }
}
