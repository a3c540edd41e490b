output "network" {
  value = google_compute_network.this.id
}

output "subnets" {
  description = "The subnets of the two groups of functions."
  value       = { functions = google_compute_subnetwork.functions.id, signing = google_compute_subnetwork.signing.id }
}

output "addresses" {
  description = "The static addresses from which requests to other hosts come."
  value       = google_compute_address.nat[*].address
}
