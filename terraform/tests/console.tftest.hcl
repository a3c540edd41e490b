# The operators' console: not there by default, and behind Identity-Aware Proxy for the members listed.

mock_provider "google" {
  override_during = plan

  mock_resource "google_kms_key_ring" {
    defaults = {
      id = "projects/project-1/locations/europe-west1/keyRings/fencepost-signers"
    }
  }

  mock_resource "google_kms_crypto_key" {
    defaults = {
      id = "projects/project-1/locations/europe-west1/keyRings/fencepost-signers/cryptoKeys/treasury"
    }
  }

  mock_resource "google_compute_backend_service" {
    defaults = {
      generated_id = 4711
    }
  }

  mock_data "google_secret_manager_secret_version" {
    defaults = { enabled = true, destroy_time = "" }
  }

  mock_data "google_project" {
    defaults = {
      number = "123456789012"
    }
  }
}

variables {
  project      = "project-1"
  environment  = "dev"
  domain       = "api.example.com"
  chain_id     = 1
  operators    = ["ada@example.com"]
  viewers      = ["eve@example.com"]
  image        = "europe-west1-docker.pkg.dev/project-1/fencepost/functions@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  signing_keys = ["treasury"]
  egress       = { hosts = ["node.example.com"] }

  secret_versions = { rpc-urls = "1", intent-mac-keys = "1", console-session-keys = "1" }
}

run "no_console" {
  command = plan

  assert {
    condition     = length(module.console) == 0 && length(google_service_account.console) == 0 && length(google_compute_backend_service.console) == 0 && length(google_iap_web_backend_service_iam_member.console) == 0 && length(google_cloud_run_v2_service_iam_member.console_calls_admin) == 0
    error_message = "There is a console that was not asked for."
  }

  assert {
    condition     = length([for r in output.public_routes : r if startswith(r.path, "/console")]) == 0 && !contains(output.secrets, "fencepost-console-session-keys")
    error_message = "The URL map has the console's path, or its secret is there."
  }

  assert {
    condition     = alltrue([for f in module.function : !contains(keys(f.environment), "FENCEPOST_CONSOLE_MODE")]) && !module.function["admin"].own_address
    error_message = "Admin accepts the tokens of a console that is not there, or has an address of its own."
  }
}

run "behind_the_proxy" {
  command = plan

  variables {
    console = { iap = { members = ["user:ada@example.com", "group:on-call@example.com"] }, trace_url = "https://traces.example/t/{traceId}" }
  }

  assert {
    condition     = google_compute_backend_service.console["console"].iap[0].enabled && [for r in output.public_routes : r.path if r.function == "console"] == ["/console/"]
    error_message = "The console's path does not lead through Identity-Aware Proxy."
  }

  assert {
    condition     = toset([for m in google_iap_web_backend_service_iam_member.console : "${m.role} ${m.member}"]) == toset(["roles/iap.httpsResourceAccessor user:ada@example.com", "roles/iap.httpsResourceAccessor group:on-call@example.com"])
    error_message = "Identity-Aware Proxy lets in others than the members listed."
  }

  assert {
    condition     = module.console["console"].ingress == "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER" && module.console["console"].checks_callers && !module.console["console"].own_address && module.console["console"].invokers == ["serviceAccount:service-123456789012@gcp-sa-iap.iam.gserviceaccount.com"]
    error_message = "The console can be reached without Identity-Aware Proxy."
  }

  assert {
    condition     = module.console["console"].account == "fencepost-console@project-1.iam.gserviceaccount.com" && [for g in google_cloud_run_v2_service_iam_member.console_calls_admin : "${g.name} ${g.role} ${g.member}"] == ["fencepost-admin roles/run.invoker serviceAccount:fencepost-console@project-1.iam.gserviceaccount.com"]
    error_message = "The console runs as another account, or may call another function than admin."
  }

  assert {
    condition     = alltrue([for key, grant in google_project_iam_member.account : !strcontains(grant.member, "fencepost-console@")]) && length(google_project_iam_member.console) == 0 && !contains(keys(module.database.users), "console")
    error_message = "The console's account has a right of the project, or a user of the database."
  }

  assert {
    condition     = [for g in google_secret_manager_secret_iam_member.console : "${g.role} ${g.member}"] == ["roles/secretmanager.secretAccessor serviceAccount:fencepost-console@project-1.iam.gserviceaccount.com"] && alltrue([for g in google_secret_manager_secret_iam_member.reader : !strcontains(g.member, "fencepost-console@")])
    error_message = "The console reads another secret than its session keys, or another account reads them."
  }

  assert {
    condition = alltrue([for name, value in {
      FENCEPOST_CONSOLE_MODE      = "iap"
      FENCEPOST_CONSOLE_AUDIENCE  = "/projects/123456789012/global/backendServices/4711"
      FENCEPOST_CONSOLE_ADMIN_URL = "https://fencepost-admin-123456789012.europe-west1.run.app"
      FENCEPOST_CONSOLE_HOSTS     = "api.example.com"
      FENCEPOST_AUTH_OPERATORS    = "ada@example.com"
      FENCEPOST_AUTH_VIEWERS      = "eve@example.com"
      FENCEPOST_CONSOLE_TRACE_URL = "https://traces.example/t/{traceId}"
    } : module.console["console"].environment[name] == value]) && !contains(keys(module.console["console"].environment), "FENCEPOST_CONSOLE_LOG_URL") && length([for name in keys(module.console["console"].environment) : name if startswith(name, "FENCEPOST_DATABASE")]) == 0
    error_message = "The console does not know its backend, admin or the people, or knows the database."
  }

  assert {
    condition     = module.function["admin"].environment["FENCEPOST_CONSOLE_AUDIENCE"] == "/projects/123456789012/global/backendServices/4711" && module.function["admin"].environment["FENCEPOST_AUTH_VIEWERS"] == "eve@example.com" && module.function["admin"].own_address && alltrue([for name, f in module.function : name == "admin" || !contains(keys(f.environment), "FENCEPOST_CONSOLE_MODE") && !f.own_address || !local.functions[name].public])
    error_message = "Admin does not accept the console's tokens, or another function does."
  }

  assert {
    condition     = google_dns_managed_zone.admin["console"].dns_name == "fencepost-admin-123456789012.europe-west1.run.app." && google_dns_managed_zone.admin["console"].visibility == "private" && contains(local.egress["functions"].hosts, "www.gstatic.com")
    error_message = "The console cannot reach admin, or the keys of Identity-Aware Proxy."
  }
}

run "console_without_its_keys" {
  command = plan

  variables {
    console         = { iap = { members = ["user:ada@example.com"] } }
    secret_versions = { rpc-urls = "1", intent-mac-keys = "1" }
  }

  expect_failures = [data.google_secret_manager_secret_version.console]
}

run "console_for_everybody" {
  command = plan

  variables {
    console = { iap = { members = ["allAuthenticatedUsers"] } }
  }

  expect_failures = [var.console]
}

run "console_for_nobody" {
  command = plan

  variables {
    console = { iap = { members = [] } }
  }

  expect_failures = [var.console]
}

run "a_viewer_who_operates" {
  command = plan

  variables {
    viewers = ["ada@example.com"]
  }

  expect_failures = [var.viewers]
}

run "a_log_without_the_transaction" {
  command = plan

  variables {
    console = { iap = { members = ["user:ada@example.com"] }, log_url = "https://logs.example/" }
  }

  expect_failures = [var.console]
}
