# Several deployments behind one load balancer. Each cell is a deployment of terraform/ with its own database, queues,
# functions and keys. The first part of the path, /cells/NAME, chooses the cell. No function knows of another cell.

locals {
  catalogue = jsondecode(file("${path.module}/../functions.json"))

  paths = flatten([
    for cell, c in var.cells : [
      for function, f in local.catalogue : [
        for path in try(f.paths, []) : {
          match   = "/cells/${cell}${path}"
          path    = path
          backend = "projects/${c.project}/global/backendServices/${c.name}-${function}"
          # A path is exact, a template with {name} for one segment, or with a slash at its end a prefix.
          kind = endswith(path, "/") ? "prefix" : strcontains(path, "{") ? "template" : "exact"
        }
      ] if c.transfers || !try(f.transfers, false)
    ]
  ])

  # Exact paths go before templates, these before prefixes, and a longer path before a shorter one.
  rank   = { prefix = 0, template = 1, exact = 2 }
  by_key = { for p in local.paths : format("%d %04d %s", local.rank[p.kind], length(p.match), p.match) => p }
  rules  = [for i, key in reverse(sort(keys(local.by_key))) : merge(local.by_key[key], { priority = i + 1 })]

  # Any backend: a default is required, and no request uses it.
  behind_default = local.rules[0].backend

  # The only member that may sign with each key: the function advance of the key's cell.
  signers = merge([
    for cell, c in var.cells : {
      for key in distinct(values(c.accounts)) :
      "projects/${c.project}/locations/${coalesce(c.key_location, c.region)}/keyRings/${coalesce(c.key_ring, "${c.name}-signers")}/cryptoKeys/${key}" =>
      "serviceAccount:${c.name}-advance@${c.project}.iam.gserviceaccount.com" if key != ""
    }
  ]...)
}

# Each cell grants its own key to its own function. This makes it the only one: the binding has the whole list of the
# role's members, and a plan shows any other member and removes it.
resource "google_kms_crypto_key_iam_binding" "signer" {
  for_each = local.signers

  crypto_key_id = each.key
  role          = "roles/cloudkms.signer"
  members       = [each.value]
}

resource "google_compute_global_address" "this" {
  name = var.name
}

resource "google_compute_url_map" "this" {
  name = var.name

  lifecycle {
    # Google's limits of a path matcher.
    precondition {
      condition     = length(local.rules) <= 1000 && length([for r in local.rules : r if r.kind == "template"]) <= 100
      error_message = "The cells have ${length(local.rules)} paths, of which ${length([for r in local.rules : r if r.kind == "template"])} have a template; a load balancer takes 1,000 and 100. Spread the cells over two of terraform/cells, with two host names."
    }
  }

  # As in a cell's own map, each unlisted host and path is a 404. Cloud Armor's policies are the cells': they are attached
  # to the backend services.
  default_service = local.behind_default

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
    path_matcher = "cells"
  }

  path_matcher {
    name            = "cells"
    default_service = local.behind_default

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
        service  = route_rules.value.backend

        match_rules {
          full_path_match     = route_rules.value.kind == "exact" ? route_rules.value.match : null
          prefix_match        = route_rules.value.kind == "prefix" ? route_rules.value.match : null
          path_template_match = route_rules.value.kind == "template" ? replace(route_rules.value.match, "}", "=*}") : null
        }

        # The functions get the path that they have without cells.
        route_action {
          url_rewrite {
            path_prefix_rewrite   = route_rules.value.kind == "template" ? null : route_rules.value.path
            path_template_rewrite = route_rules.value.kind == "template" ? route_rules.value.path : null
          }
        }
      }
    }
  }
}

module "front" {
  source = "../modules/front"

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
