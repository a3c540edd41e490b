# What the deployment is protected by: the defaults, and the options.

mock_provider "google" {
  source          = "./tests/mocks"
  override_during = plan
}

variables {
  project      = "project-1"
  environment  = "dev"
  domain       = "api.example.com"
  chain_id     = 1
  operators    = ["ada@example.com"]
  readers      = ["ada@example.com"]
  image        = "europe-west1-docker.pkg.dev/project-1/fencepost/functions@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  signing_keys = ["treasury"]
  egress       = { hosts = ["node.example.com"] }

  # Of each secret, as after its value was given.
  secret_versions = { for id in ["rpc-urls", "intent-mac-keys", "chains", "signer-keys", "signer-remotes", "handler-secrets", "event-secrets", "trading-secret"] : id => "1" }
}

run "defaults" {
  command = plan

  assert {
    condition     = var.signers == toset(["kms"]) && !var.armor_preview && length(var.admin_ranges) == 0 && !var.egress.open
    error_message = "A default is not the safe one: keys in the HSM, Cloud Armor refusing, admin closed, egress closed."
  }

  assert {
    condition     = { for service, c in google_project_iam_audit_config.access : service => toset([for l in c.audit_log_config : l.log_type]) } == { for service in ["cloudkms.googleapis.com", "cloudsql.googleapis.com", "secretmanager.googleapis.com"] : service => toset(["ADMIN_READ", "DATA_READ", "DATA_WRITE"]) }
    error_message = "A signature, a read of a secret or a login to the database is not logged."
  }

  assert {
    condition     = module.database.replica == null && module.signer.place == "europe-west1/fencepost-signers" && length(google_logging_project_bucket_config.audit) == 0 && length(google_kms_crypto_key_iam_member.encrypts) == 0 && length(google_binary_authorization_policy.this) == 0
    error_message = "An option is made that was not asked for."
  }

  assert {
    condition = alltrue([for key, g in google_project_iam_member.account : contains(["roles/cloudsql.client", "roles/cloudsql.instanceUser"], g.role)
      ? one(g.condition).expression == "resource.name == 'projects/project-1/instances/fencepost' && resource.service == 'sqladmin.googleapis.com'"
    : length(g.condition) == 0])
    error_message = "A role of the database is given on another instance than this one, or another role under a condition that never holds."
  }

  assert {
    condition     = jsonencode({ for group, e in local.egress : group => sort(e.hosts) }) == jsonencode({ functions = ["node.example.com"], signing = ["node.example.com"] }) && local.egress_ports == toset(["443"])
    error_message = "A group of functions reaches other hosts than the nodes."
  }

  assert {
    condition     = [for name, subnet in local.subnet_of : name if subnet == "signing"] == ["advance"]
    error_message = "Not the function that signs alone is in the subnet of those that sign."
  }
}

run "what_cloud_check_asks" {
  command = plan

  assert {
    condition     = output.deployment.audience == "https://api.example.com" && !output.deployment.armor_preview && output.deployment.logged_share == 0.1 && output.deployment.mark_bucket == local.environment["FENCEPOST_MARK_BUCKET"]
    error_message = "scripts/cloud-check asks for other tokens than the functions take, takes the log for whole, or reads another mark than the functions."
  }
}

run "what_cloud_check_asks_of_a_cell" {
  command = plan

  variables {
    settings      = { FENCEPOST_AUTH_PUBLIC_AUDIENCE = "https://all.example.com" }
    armor_preview = true
  }

  assert {
    condition     = output.deployment.audience == "https://all.example.com" && output.deployment.armor_preview
    error_message = "scripts/cloud-check asks for tokens that a cell does not take."
  }
}

run "several_signers" {
  command = plan

  variables {
    signers = ["kms", "remote", "local"]
    egress  = { hosts = ["node.example.com"], signer_hosts = ["signer.example.com"], signer_ranges = ["10.9.0.7/32"] }
  }

  assert {
    condition     = jsonencode({ for name, files in local.signer_files_of : name => sort(keys(files)) if length(files) > 0 }) == jsonencode({ admin = ["signer-remotes"], advance = ["signer-keys", "signer-remotes"] })
    error_message = "Another function than the one that signs has keys, or one that must know the services does not."
  }

  assert {
    condition     = toset([for name, role in module.signer.grants : "${name} ${role}"]) == toset(["treasury admin roles/cloudkms.publicKeyViewer", "treasury advance roles/cloudkms.signer"])
    error_message = "Beside other signers the HSM's keys cannot be used."
  }

  assert {
    condition     = [for name, subnet in local.subnet_of : name if subnet == "signing"] == ["admin", "advance"]
    error_message = "A function with the credentials of a signing service is not in the subnet of those that sign."
  }

  assert {
    condition     = !contains(local.egress["functions"].hosts, "signer.example.com") && contains(local.egress["signing"].hosts, "signer.example.com") && local.egress["signing"].ranges == toset(["10.9.0.7/32"]) && length(local.egress["functions"].ranges) == 0
    error_message = "A function that never signs reaches the signing service, or one that signs does not."
  }
}

run "egress_follows_the_variables" {
  command = plan

  variables {
    oidc      = { issuer = "https://login.example.com", jwks_url = "https://login.example.com/keys" }
    handlers  = { shop = "https://shop.example.com:8443/make", near = "https://10.9.0.8/make" }
    events    = { mode = "webhook", endpoints = { crm = "https://crm.example.com/hook" } }
    transfers = { trading_url = "https://core.example.com", users_issuer = "https://users.example.com", users_jwks_url = "https://users.example.com/jwks", users_audience = "https://exchange.example.com" }
  }

  assert {
    condition = jsonencode({ for group, e in local.egress : group => sort(e.hosts) }) == jsonencode({
      functions = ["core.example.com", "crm.example.com", "login.example.com", "node.example.com", "users.example.com"]
      signing   = ["login.example.com", "node.example.com", "shop.example.com"]
    })
    error_message = "A host that a variable names is not allowed to the functions that call it, or is to others."
  }

  assert {
    condition     = local.egress["signing"].ranges == toset(["10.9.0.8/32"]) && local.egress_ports == toset(["443", "8443"])
    error_message = "A handler at an address, or at a port of its own, is not reached."
  }
}

run "locked_audit_log" {
  command = plan

  variables {
    audit_lock_days = 400
  }

  assert {
    condition     = google_logging_project_bucket_config.audit[0].locked && google_logging_project_bucket_config.audit[0].retention_days == 400 && alltrue([for log in ["activity", "data_access", "policy"] : strcontains(google_logging_project_sink.audit[0].filter, "log_id(\"cloudaudit.googleapis.com/${log}\")")])
    error_message = "An audit log is not kept, or can be deleted."
  }
}

run "key_of_ones_own" {
  command = plan

  variables {
    encryption_key = "projects/project-2/locations/europe-west1/keyRings/own/cryptoKeys/fencepost"
  }

  assert {
    condition     = alltrue([for key in [google_storage_bucket.mark.encryption[0].default_kms_key_name, google_artifact_registry_repository.images.kms_key_name, google_pubsub_topic.events.kms_key_name, module.database.encryption_key] : key == var.encryption_key])
    error_message = "Something is encrypted by another key."
  }

  assert {
    condition     = alltrue([for s in google_secret_manager_secret.value : s.replication[0].user_managed[0].replicas[0].customer_managed_encryption[0].kms_key_name == var.encryption_key])
    error_message = "A secret is encrypted by another key."
  }

  assert {
    condition     = { for service, g in google_kms_crypto_key_iam_member.encrypts : service => g.member }["secrets"] == "serviceAccount:service-123456789012@gcp-sa-secretmanager.iam.gserviceaccount.com" && length(google_kms_crypto_key_iam_member.encrypts) == 6 && alltrue([for g in google_kms_crypto_key_iam_member.encrypts : g.role == "roles/cloudkms.cryptoKeyEncrypterDecrypter"])
    error_message = "A service of Google's cannot use the key, or may do more than use it."
  }
}

run "outlives_the_region" {
  command = plan

  variables {
    database         = { replica_region = "europe-west4" }
    secret_regions   = ["europe-west4"]
    signer_location  = "europe"
    signing_key_ring = "lost-signers"
    mark_location    = "EU"
  }

  assert {
    condition     = module.database.replica == "fencepost-replica" && module.signer.place == "europe/lost-signers" && google_storage_bucket.mark.location == "EU"
    error_message = "The database, the keys or the mark are lost with the region."
  }

  assert {
    condition     = alltrue([for s in google_secret_manager_secret.value : toset([for r in s.replication[0].user_managed[0].replicas : r.location]) == toset(["europe-west1", "europe-west4"])])
    error_message = "A secret is lost with the region."
  }
}

run "secrets_of_two_regions_by_a_key_of_one" {
  command = plan

  variables {
    encryption_key = "projects/project-2/locations/europe-west1/keyRings/own/cryptoKeys/fencepost"
    secret_regions = ["europe-west4"]
  }

  expect_failures = [var.secret_regions]
}

run "locked_log_by_a_key_of_ones_own" {
  command = plan

  variables {
    encryption_key  = "projects/project-2/locations/europe-west1/keyRings/own/cryptoKeys/fencepost"
    audit_lock_days = 30
  }

  override_data {
    target          = data.google_logging_project_cmek_settings.this[0]
    override_during = plan
    values          = { service_account_id = "cmek-p123456789012@gcp-sa-logging.iam.gserviceaccount.com" }
  }

  assert {
    condition     = google_logging_project_bucket_config.audit[0].cmek_settings[0].kms_key_name == var.encryption_key && google_kms_crypto_key_iam_member.encrypts["log"].member == "serviceAccount:cmek-p123456789012@gcp-sa-logging.iam.gserviceaccount.com"
    error_message = "The locked log is encrypted by another key, or Cloud Logging cannot use it."
  }
}

run "attested_images" {
  command = plan

  variables {
    binary_authorization = { attestors = ["projects/project-1/attestors/built-here"] }
    collector_image      = "us-docker.pkg.dev/x/otelcol-google@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  }

  assert {
    condition     = one(google_binary_authorization_policy.this[0].default_admission_rule).evaluation_mode == "REQUIRE_ATTESTATION" && one(google_binary_authorization_policy.this[0].default_admission_rule).enforcement_mode == "ENFORCED_BLOCK_AND_AUDIT_LOG"
    error_message = "An image starts that nobody attested."
  }

  assert {
    condition     = [for p in google_binary_authorization_policy.this[0].admission_whitelist_patterns : p.name_pattern] == [var.collector_image]
    error_message = "The collector does not start, or more than its one digest does."
  }
}
