variable "behind_iap" {
  description = "Whether a public function is behind Identity-Aware Proxy, whose account Cloud Run then checks."
  type        = bool
  default     = false
}

variable "called_inside" {
  description = "Whether a public function is also called from this network, by its address of Cloud Run."
  type        = bool
  default     = false
}

output "own_address" {
  description = "Whether the function has an address of its own beside the load balancer's."
  value       = !google_cloud_run_v2_service.this.default_uri_disabled
}

output "environment" {
  description = "The variables of the function, without secrets."
  value       = { for e in google_cloud_run_v2_service.this.template[0].containers[0].env : e.name => e.value if length(e.value_source) == 0 }
}
