# The network that instances reach the database through, without addresses of their own on the internet.

resource "google_compute_network" "this" {
  name                    = var.name
  auto_create_subnetworks = false
}

resource "google_compute_subnetwork" "functions" {
  name                     = "${var.name}-functions"
  region                   = var.region
  network                  = google_compute_network.this.id
  ip_cidr_range            = var.subnet_range
  private_ip_google_access = true
}

# The functions that sign have a subnet of their own, since rules of egress go by subnets.
resource "google_compute_subnetwork" "signing" {
  name                     = "${var.name}-signing"
  region                   = var.region
  network                  = google_compute_network.this.id
  ip_cidr_range            = var.signing_range
  private_ip_google_access = true
}

# Where Google puts the database.
resource "google_compute_global_address" "services" {
  name          = "${var.name}-services"
  purpose       = "VPC_PEERING"
  address_type  = "INTERNAL"
  prefix_length = 20
  network       = google_compute_network.this.id
}

resource "google_service_networking_connection" "services" {
  network                 = google_compute_network.this.id
  service                 = "servicenetworking.googleapis.com"
  reserved_peering_ranges = [google_compute_global_address.services.name]

  # Cloud SQL holds the peering for some time after the database was deleted, and a delete would fail meanwhile.
  deletion_policy = "ABANDON"
}
