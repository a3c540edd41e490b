# The open end of a load balancer: the certificate, TLS and the port.

resource "google_compute_managed_ssl_certificate" "this" {
  name = "${var.name}-${substr(sha256(var.domain), 0, 8)}"

  managed {
    domains = [var.domain]
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "google_compute_ssl_policy" "this" {
  name            = var.name
  profile         = "MODERN"
  min_tls_version = "TLS_1_2"
}

resource "google_compute_target_https_proxy" "this" {
  name             = var.name
  url_map          = var.url_map
  ssl_certificates = [google_compute_managed_ssl_certificate.this.id]
  ssl_policy       = google_compute_ssl_policy.this.id
}

# Port 443 alone: a token that is sent in the clear is lost before any redirect could be answered.
resource "google_compute_global_forwarding_rule" "this" {
  name                  = var.name
  load_balancing_scheme = "EXTERNAL_MANAGED"
  ip_address            = var.address
  port_range            = "443"
  target                = google_compute_target_https_proxy.this.id
}
