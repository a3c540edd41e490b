output "network" {
  value = google_compute_network.this.id
}

output "subnet" {
  value = google_compute_subnetwork.functions.id
}
