# One job that calls one internal function.

resource "google_cloud_scheduler_job" "this" {
  name             = var.name
  region           = var.region
  schedule         = var.schedule
  time_zone        = "Etc/UTC"
  attempt_deadline = var.deadline

  # A run that failed is made good by the next.
  retry_config {
    retry_count = 0
  }

  http_target {
    http_method = "POST"
    uri         = var.uri
    headers     = { "Content-Type" = "application/json" }
    body        = base64encode(jsonencode(var.body))

    oidc_token {
      service_account_email = var.account
      audience              = var.audience
    }
  }
}
