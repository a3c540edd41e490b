output "ids" {
  description = "The id of each resource, by which a plan test sees that none is made anew."
  value = {
    certificate = google_compute_managed_ssl_certificate.this.id
    policy      = google_compute_ssl_policy.this.id
    proxy       = google_compute_target_https_proxy.this.id
    rule        = google_compute_global_forwarding_rule.this.id
  }
}
