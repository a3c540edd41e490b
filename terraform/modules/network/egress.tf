# The way out: Google's APIs by addresses of their own inside Google's network, the database by its private address, and
# the hosts that are allowed through one gateway with static addresses. Nothing else is reached.

locals {
  # private.googleapis.com: https://cloud.google.com/vpc/docs/configure-private-google-access
  google_apis = "199.36.153.8/30"

  sources = { functions = google_compute_subnetwork.functions.ip_cidr_range, signing = google_compute_subnetwork.signing.ip_cidr_range }

  # Of each group, from the first that is tried. A rule without hosts or ranges would mean every destination.
  rules = merge([for i, group in sort(keys(var.egress)) : { for rule in [
    { name = "google-apis", action = "allow", ranges = [local.google_apis], hosts = [], ports = ["443"], made = true },
    { name = "database", action = "allow", ranges = ["${google_compute_global_address.services.address}/${google_compute_global_address.services.prefix_length}"], hosts = [], ports = ["3307"], made = true },
    { name = "ranges", action = "allow", ranges = var.egress[group].ranges, hosts = [], ports = var.egress_ports, made = length(var.egress[group].ranges) > 0 },
    { name = "hosts", action = "allow", ranges = [], hosts = var.egress[group].hosts, ports = var.egress_ports, made = length(var.egress[group].hosts) > 0 },
    { name = "nothing-else", action = "deny", ranges = ["0.0.0.0/0"], hosts = [], ports = [], made = true },
    ] : "${group}-${rule.name}" => merge(rule, {
      source   = local.sources[group]
      priority = 1000 * (i + 1) + index(["google-apis", "database", "ranges", "hosts", "nothing-else"], rule.name)
  }) if rule.made && var.closed }]...)
}

resource "google_compute_network_firewall_policy" "egress" {
  name        = "${var.name}-egress"
  description = "Hosts and ranges that the functions may reach"
}

resource "google_compute_network_firewall_policy_association" "egress" {
  name              = "${var.name}-egress"
  attachment_target = google_compute_network.this.id
  firewall_policy   = google_compute_network_firewall_policy.egress.id
}

# A rule's source is a whole subnet: Cloud Run's instances take no tag that a policy could name.
resource "google_compute_network_firewall_policy_rule" "egress" {
  for_each = local.rules

  firewall_policy = google_compute_network_firewall_policy.egress.name
  rule_name       = each.key
  priority        = each.value.priority
  direction       = "EGRESS"
  action          = each.value.action

  match {
    src_ip_ranges  = [each.value.source]
    dest_ip_ranges = each.value.ranges
    dest_fqdns     = each.value.hosts

    layer4_configs {
      ip_protocol = each.value.action == "deny" ? "all" : "tcp"
      ports       = each.value.ports
    }
  }
}

resource "google_compute_router" "this" {
  name    = var.name
  region  = var.region
  network = google_compute_network.this.id
}

resource "google_compute_address" "nat" {
  count = var.nat_addresses

  name   = "${var.name}-egress-${count.index}"
  region = var.region
}

resource "google_compute_router_nat" "this" {
  name   = var.name
  router = google_compute_router.this.name
  region = var.region

  nat_ip_allocate_option             = "MANUAL_ONLY"
  nat_ips                            = google_compute_address.nat[*].self_link
  source_subnetwork_ip_ranges_to_nat = "LIST_OF_SUBNETWORKS"

  # One instance has up to rpc.maxInFlight (100) requests to one node under way.
  min_ports_per_vm = 256

  dynamic "subnetwork" {
    for_each = { functions = google_compute_subnetwork.functions.id, signing = google_compute_subnetwork.signing.id }

    content {
      name                    = subnetwork.value
      source_ip_ranges_to_nat = ["ALL_IP_RANGES"]
    }
  }

  log_config {
    enable = true
    filter = "ERRORS_ONLY"
  }
}

# Inside this network the names of Google's APIs lead to those addresses.
resource "google_dns_managed_zone" "google_apis" {
  name       = "${var.name}-googleapis"
  dns_name   = "googleapis.com."
  visibility = "private"

  private_visibility_config {
    networks {
      network_url = google_compute_network.this.id
    }
  }
}

resource "google_dns_record_set" "google_apis" {
  for_each = {
    "private.googleapis.com." = { type = "A", values = ["199.36.153.8", "199.36.153.9", "199.36.153.10", "199.36.153.11"] }
    "*.googleapis.com."       = { type = "CNAME", values = ["private.googleapis.com."] }
  }

  managed_zone = google_dns_managed_zone.google_apis.name
  name         = each.key
  type         = each.value.type
  ttl          = 300
  rrdatas      = each.value.values
}
