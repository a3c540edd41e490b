output "address" {
  value = google_compute_global_address.this.address
}

output "routes" {
  description = "The public paths in the order of their rules, and the function of each."
  value       = [for r in local.rules : { path = join(" ", compact([r.method, r.path])), function = r.service }]
}

output "logged_share" {
  description = "The share of requests that the load balancer logs."
  value       = local.logged_share
}
