# What a first plan does not know yet, and what an apply moves. Here no mock knows an id before an apply.

mock_provider "google" {
  source = "./tests/mocks"
}

variables {
  project     = "project-1"
  environment = "dev"
  domain      = "api.example.com"
  chain_id    = 1
  name        = "fencepost"
  region      = "europe-west1"
}

run "first_plan_of_everything" {
  command = plan

  variables {
    operators       = ["ada@example.com"]
    readers         = ["ada@example.com"]
    image           = "europe-west1-docker.pkg.dev/project-1/fencepost/functions@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    collector_image = "c@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    signing_keys    = ["treasury"]
    signers         = ["kms", "remote", "local"]
    egress          = { hosts = ["node.example.com"], signer_hosts = ["signer.example.com"] }
    database        = { replica_region = "europe-west4" }
    audit_lock_days = 30
    more_chains     = true
    handlers        = { shop = "https://shop.example.com/make" }
    transfers       = { trading_url = "https://core.example.com", users_issuer = "https://users.example.com", users_jwks_url = "https://users.example.com/jwks", users_audience = "https://exchange.example.com" }
    events          = { mode = "webhook", endpoints = { shop = "https://shop.example.com/hook" }, callers = { shop = ["shop@project-1.iam.gserviceaccount.com"] } }

    binary_authorization = { attestors = ["projects/project-1/attestors/built-here"] }

    secret_versions = { for id in ["rpc-urls", "intent-mac-keys", "chains", "signer-keys", "signer-remotes", "handler-secrets", "event-secrets", "trading-secret"] : id => "1" }
  }

  # Something whose number depends on an id would end the plan before this.
  assert {
    condition     = toset(keys(module.function)) == toset(keys(local.functions)) && length(module.balancer) == 1 && length(module.migration) == 1
    error_message = "The first plan does not make everything."
  }
}

run "front" {
  state_key = "front"

  module {
    source = "./modules/front"
  }

  variables {
    url_map = "projects/project-1/global/urlMaps/fencepost"
    address = "projects/project-1/global/addresses/fencepost"
  }

  assert {
    condition     = google_compute_global_forwarding_rule.this.port_range == "443" && google_compute_ssl_policy.this.min_tls_version == "TLS_1_2" && google_compute_target_https_proxy.this.ssl_policy == google_compute_ssl_policy.this.id
    error_message = "Requests can come in the clear."
  }
}

# The state of the run before has these resources where a balancer had them before they were a module.
run "front_of_an_existing_balancer_is_moved" {
  command   = plan
  state_key = "front"

  module {
    source = "./modules/balancer"
  }

  variables {
    services            = { admin = { service = "fencepost-admin", paths = ["/admin/v1/"] }, query = { service = "fencepost-query", paths = ["/api/v1/tx/"] } }
    behind_default      = "query"
    admin               = "admin"
    admin_ranges        = []
    requests_per_minute = 600
    preview             = false

    caller_ranges              = []
    caller_requests_per_minute = 6000
  }

  assert {
    condition     = module.front.ids == run.front.ids
    error_message = "An existing deployment gets a new certificate, proxy or forwarding rule."
  }
}
