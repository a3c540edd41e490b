# The way in from the internet: one address, one certificate, and a URL map that is the one list of public paths.

locals {
  # Of requests, in the log, with what Cloud Armor did or would have done.
  logged_share = 0.1

  # Paths are written as net/http does: {name} for one segment, a slash at the end for everything below, a method in
  # front where it matters. A more exact path comes first.
  paths = flatten([
    for name, paths in local.all_paths : [
      for path in paths : {
        service = name
        method  = length(split(" ", path)) > 1 ? split(" ", path)[0] : null
        path    = reverse(split(" ", path))[0]
      }
    ]
  ])

  routes = { for p in local.paths : join(" ", compact([p.method, p.path])) => merge(p, {
    prefix   = endswith(p.path, "/")
    template = strcontains(p.path, "{")
  }) }

  # A path with a method goes before the same path without one, a longer path before a shorter.
  order = reverse(sort([for key, r in local.routes : format("%d %d %03d %s", r.prefix ? 0 : r.template ? 1 : 2, r.method == null ? 0 : 1, length(r.path), key)]))

  rules = [for i, line in local.order : merge(local.routes[join(" ", slice(split(" ", line), 3, length(split(" ", line))))], { priority = i + 1 })]
}

resource "google_compute_global_address" "this" {
  name = var.name
}

resource "google_compute_region_network_endpoint_group" "service" {
  for_each = var.services

  name                  = each.value.service
  region                = var.region
  network_endpoint_type = "SERVERLESS"

  cloud_run {
    service = each.value.service
  }
}

resource "google_compute_backend_service" "service" {
  for_each = var.services

  name                  = each.value.service
  load_balancing_scheme = "EXTERNAL_MANAGED"
  protocol              = "HTTPS"
  security_policy       = each.key == var.admin ? google_compute_security_policy.admin.id : google_compute_security_policy.public.id

  backend {
    group = google_compute_region_network_endpoint_group.service[each.key].id
  }

  log_config {
    enable      = true
    sample_rate = local.logged_share
  }
}

resource "google_compute_url_map" "this" {
  name = var.name

  # The load balancer answers 404 to each unlisted host and path, and so to /healthz and /readyz, of which the second
  # queries Postgres.
  default_service = google_compute_backend_service.service[var.behind_default].id

  default_route_action {
    fault_injection_policy {
      abort {
        http_status = 404
        percentage  = 100
      }
    }
  }

  host_rule {
    hosts        = [var.domain]
    path_matcher = "public"
  }

  path_matcher {
    name            = "public"
    default_service = google_compute_backend_service.service[var.behind_default].id

    default_route_action {
      fault_injection_policy {
        abort {
          http_status = 404
          percentage  = 100
        }
      }
    }

    dynamic "route_rules" {
      for_each = local.rules

      content {
        priority = route_rules.value.priority
        service  = local.backends[route_rules.value.service]

        match_rules {
          full_path_match     = route_rules.value.prefix || route_rules.value.template ? null : route_rules.value.path
          prefix_match        = route_rules.value.prefix ? route_rules.value.path : null
          path_template_match = route_rules.value.template ? replace(route_rules.value.path, "/\\{[^}]*\\}/", "*") : null

          dynamic "header_matches" {
            for_each = route_rules.value.method == null ? [] : [route_rules.value.method]

            content {
              header_name = ":method"
              exact_match = header_matches.value
            }
          }
        }
      }
    }
  }
}

module "front" {
  source = "../front"

  name    = var.name
  domain  = var.domain
  url_map = google_compute_url_map.this.id
  address = google_compute_global_address.this.id
}

moved {
  from = google_compute_managed_ssl_certificate.this
  to   = module.front.google_compute_managed_ssl_certificate.this
}

moved {
  from = google_compute_ssl_policy.this
  to   = module.front.google_compute_ssl_policy.this
}

moved {
  from = google_compute_target_https_proxy.this
  to   = module.front.google_compute_target_https_proxy.this
}

moved {
  from = google_compute_global_forwarding_rule.this
  to   = module.front.google_compute_global_forwarding_rule.this
}
