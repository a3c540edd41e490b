# What each validation refuses.

mock_provider "google" {
  source          = "./tests/mocks"
  override_during = plan
}

variables {
  project     = "project-1"
  environment = "dev"

  deletion_protection = true

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

run "local_in_prod" {
  command = plan

  variables {
    environment     = "prod"
    signers         = ["local"]
    oidc            = { open = true }
    collector_image = "c@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  }

  expect_failures = [var.signers]
}

run "no_signer" {
  command = plan

  variables {
    signers = []
  }

  expect_failures = [var.signers]
}

run "the_former_variable" {
  command = plan

  variables {
    signer = "kms"
  }

  expect_failures = [var.signer]
}

run "open_egress_in_prod" {
  command = plan

  variables {
    environment     = "prod"
    oidc            = { open = true }
    egress          = { open = true }
    collector_image = "c@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  }

  expect_failures = [var.egress]
}

run "egress_without_nodes" {
  command = plan

  variables {
    egress = {}
  }

  expect_failures = [var.egress]
}

run "egress_without_the_signer" {
  command = plan

  variables {
    signers = ["remote"]
  }

  expect_failures = [var.egress]
}

run "egress_to_a_url" {
  command = plan

  variables {
    egress = { hosts = ["https://node.example.com/key"] }
  }

  expect_failures = [var.egress]
}

run "egress_to_an_address_by_name" {
  command = plan

  variables {
    egress = { hosts = ["192.0.2.7"] }
  }

  expect_failures = [var.egress]
}

run "egress_to_everything" {
  command = plan

  variables {
    egress = { hosts = ["node.example.com"], ranges = ["0.0.0.0/0"] }
  }

  expect_failures = [var.egress]
}

run "egress_by_no_port" {
  command = plan

  variables {
    egress = { hosts = ["node.example.com"], ports = [] }
  }

  expect_failures = [var.egress]
}

run "egress_from_no_address" {
  command = plan

  variables {
    egress = { hosts = ["node.example.com"], nat_addresses = 0 }
  }

  expect_failures = [var.egress]
}

run "collector_by_tag" {
  command = plan

  variables {
    collector_image = "us-docker.pkg.dev/x/otelcol-google:0.160.0"
  }

  expect_failures = [var.collector_image]
}

run "prod_without_metrics" {
  command = plan

  variables {
    environment = "prod"
    oidc        = { open = true }
  }

  expect_failures = [var.collector_image]
}

run "prod_does_not_say_whose_tokens" {
  command = plan

  variables {
    environment     = "prod"
    collector_image = "c@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  }

  expect_failures = [var.oidc]
}

run "googles_issuer_is_open" {
  command = plan

  variables {
    oidc = { open = false }
  }

  expect_failures = [var.oidc]
}

run "preview_in_prod" {
  command = plan

  variables {
    environment     = "prod"
    oidc            = { open = true }
    armor_preview   = true
    collector_image = "c@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  }

  expect_failures = [var.armor_preview]
}

run "admin_for_everybody_in_prod" {
  command = plan

  variables {
    environment     = "prod"
    oidc            = { open = true }
    admin_ranges    = ["*"]
    collector_image = "c@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  }

  expect_failures = [var.admin_ranges]
}

run "admin_for_a_name" {
  command = plan

  variables {
    admin_ranges = ["office.example.com"]
  }

  expect_failures = [var.admin_ranges]
}

run "attested_by_nobody" {
  command = plan

  variables {
    binary_authorization = { attestors = [] }
  }

  expect_failures = [var.binary_authorization]
}

run "a_key_of_another_region" {
  command = plan

  variables {
    encryption_key = "projects/project-2/locations/us-east1/keyRings/own/cryptoKeys/fencepost"
  }

  expect_failures = [var.encryption_key]
}

run "a_key_that_the_mark_cannot_have" {
  command = plan

  variables {
    encryption_key = "projects/project-2/locations/europe-west1/keyRings/own/cryptoKeys/fencepost"
    mark_location  = "EU"
  }

  expect_failures = [var.encryption_key]
}

run "locked_for_no_day" {
  command = plan

  variables {
    audit_lock_days = 0
  }

  expect_failures = [var.audit_lock_days]
}

run "no_such_environment" {
  command = plan

  variables {
    environment = "qa"
  }

  expect_failures = [var.environment]
}

run "domain_with_a_scheme" {
  command = plan

  variables {
    domain = "https://api.example.com"
  }

  expect_failures = [var.domain]
}

run "no_such_chain" {
  command = plan

  variables {
    chain_id = 0
  }

  expect_failures = [var.chain_id]
}

run "migration_by_tag" {
  command = plan

  variables {
    migrate_image = "europe-west1-docker.pkg.dev/project-1/fencepost/functions:latest"
  }

  expect_failures = [var.migrate_image]
}

run "name_too_long" {
  command = plan

  variables {
    name = "fencepost-of-ours"
  }

  expect_failures = [var.name]
}

run "role_of_65_characters" {
  command = plan

  variables {
    name    = "fencepost-eu"
    project = "a-project-of-thirty-characters"
  }

  expect_failures = [var.name]
}

run "no_shard" {
  command = plan

  variables {
    queue_shards = 0
  }

  expect_failures = [var.queue_shards]
}

run "instances_of_no_function" {
  command = plan

  variables {
    max_instances = { nothing = 3 }
  }

  expect_failures = [var.max_instances]
}

run "warm_instances_of_no_function" {
  command = plan

  variables {
    min_instances = { nothing = 1 }
  }

  expect_failures = [var.min_instances]
}

run "instance_in_capitals" {
  command = plan

  variables {
    database_instance_name = "Restored"
  }

  expect_failures = [var.database_instance_name]
}

run "handler_without_tls" {
  command = plan

  variables {
    handlers = { shop = "http://shop.example.com" }
  }

  expect_failures = [var.handlers]
}

run "no_such_events" {
  command = plan

  variables {
    events = { mode = "fax" }
  }

  expect_failures = [var.events]
}

run "webhook_without_receivers" {
  command = plan

  variables {
    events = { mode = "webhook" }
  }

  expect_failures = [var.events]
}

run "callers_of_no_receiver" {
  command = plan

  variables {
    events = { mode = "webhook", endpoints = { shop = "https://shop.example.com/hook" }, callers = { crm = ["a@example.com"] } }
  }

  expect_failures = [var.events]
}

run "setting_of_another_program" {
  command = plan

  variables {
    settings = { PATH = "/" }
  }

  expect_failures = [var.settings]
}

run "admin_from_eleven_ranges" {
  command = plan

  variables {
    admin_ranges = [for i in range(11) : "192.0.2.${i}/32"]
  }

  expect_failures = [var.admin_ranges]
}

run "approval_of_an_unknown_kind" {
  command = plan

  variables {
    operators = ["ada@example.com", "ben@example.com"]
    approvals = { required = ["everything"] }
  }

  expect_failures = [var.approvals]
}

run "approvals_with_one_operator" {
  command = plan

  variables {
    approvals = { required = ["policy"] }
  }

  expect_failures = [var.approvals]
}

run "operator_without_kind" {
  command = plan

  variables {
    operators = ["ada"]
  }

  expect_failures = [var.operators]
}

run "deposit_service_that_is_an_operator" {
  command = plan

  variables {
    deposit_service = ["ada@example.com"]
  }

  expect_failures = [var.deposit_service]
}

run "callers_by_name" {
  command = plan

  variables {
    caller_ranges = ["*"]
  }

  expect_failures = [var.caller_ranges]
}

run "callers_with_less_than_everybody" {
  command = plan

  variables {
    caller_requests_per_minute = 100
  }

  expect_failures = [var.caller_requests_per_minute]
}

run "queues_of_an_impossible_name" {
  command = plan

  variables {
    queue_prefix = "Fence_post"
  }

  expect_failures = [var.queue_prefix]
}
