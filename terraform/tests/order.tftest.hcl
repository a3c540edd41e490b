# The order in which things are made, and what stays when something is taken back.

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
  image        = "europe-west1-docker.pkg.dev/project-1/fencepost/functions@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  signing_keys = ["treasury"]
  egress       = { hosts = ["node.example.com"], signer_hosts = ["signer.example.com"] }

  secret_versions = { rpc-urls = "1", intent-mac-keys = "1" }
}

run "secrets_come_before_the_image" {
  command = plan

  variables {
    image           = null
    secret_versions = {}
    transfers       = { trading_url = "https://core.example.com", users_issuer = "https://users.example.com", users_jwks_url = "https://users.example.com/jwks", users_audience = "https://exchange.example.com" }
  }

  assert {
    condition     = output.secrets == tolist(["fencepost-intent-mac-keys", "fencepost-rpc-urls", "fencepost-trading-secret"]) && length(data.google_secret_manager_secret_version.value) == 0
    error_message = "The first apply does not make the secrets, or asks for values that nobody could give."
  }
}

run "functions_without_any_value" {
  command = plan

  variables {
    secret_versions = {}
  }

  expect_failures = [data.google_secret_manager_secret_version.value]
}

run "transfers_without_a_value" {
  command = plan

  variables {
    transfers = { trading_url = "https://core.example.com", users_issuer = "https://users.example.com", users_jwks_url = "https://users.example.com/jwks", users_audience = "https://exchange.example.com" }
  }

  expect_failures = [data.google_secret_manager_secret_version.value["trading-secret"]]
}

run "webhooks_without_a_value" {
  command = plan

  variables {
    events = { mode = "webhook", endpoints = { shop = "https://shop.example.com/hook" } }
  }

  expect_failures = [data.google_secret_manager_secret_version.value["event-secrets"]]
}

run "handlers_without_a_value" {
  command = plan

  variables {
    handlers = { shop = "https://shop.example.com/make" }
  }

  expect_failures = [data.google_secret_manager_secret_version.value["handler-secrets"]]
}

run "chains_without_a_value" {
  command = plan

  variables {
    more_chains = true
  }

  expect_failures = [data.google_secret_manager_secret_version.value["chains"]]
}

run "remote_signers_without_a_value" {
  command = plan

  variables {
    signers = ["kms", "remote"]
  }

  expect_failures = [data.google_secret_manager_secret_version.value["signer-remotes"]]
}

run "local_signers_without_a_value" {
  command = plan

  variables {
    signers = ["kms", "local"]
  }

  expect_failures = [data.google_secret_manager_secret_version.value["signer-keys"]]
}

run "a_disabled_version" {
  command = plan

  override_data {
    target          = data.google_secret_manager_secret_version.value["rpc-urls"]
    override_during = plan
    values          = { enabled = false, destroy_time = "" }
  }

  expect_failures = [data.google_secret_manager_secret_version.value["rpc-urls"]]
}

run "a_destroyed_version" {
  command = plan

  override_data {
    target          = data.google_secret_manager_secret_version.value["rpc-urls"]
    override_during = plan
    values          = { enabled = true, destroy_time = "2026-11-27T10:00:00Z" }
  }

  expect_failures = [data.google_secret_manager_secret_version.value["rpc-urls"]]
}

run "everything" {
  command = plan

  variables {
    secret_versions = { rpc-urls = "3", intent-mac-keys = "1", trading-secret = "2", event-secrets = "1" }
    transfers       = { trading_url = "https://core.example.com", users_issuer = "https://users.example.com", users_jwks_url = "https://users.example.com/jwks", users_audience = "https://exchange.example.com" }
    events          = { mode = "webhook", endpoints = { shop = "https://shop.example.com/hook" } }
  }

  assert {
    condition     = { for id, v in data.google_secret_manager_secret_version.value : id => "${v.secret} ${v.version} ${v.fetch_secret_data}" } == { rpc-urls = "fencepost-rpc-urls 3 false", intent-mac-keys = "fencepost-intent-mac-keys 1 false", trading-secret = "fencepost-trading-secret 2 false", event-secrets = "fencepost-event-secrets 1 false" }
    error_message = "A version is not looked up before a service reads it, or its value gets into the state."
  }

  assert {
    condition     = local.secrets_of["transfer"]["FENCEPOST_TRADING_SECRET"].version == "2" && local.secrets_of["transfer"]["FENCEPOST_RPC_URLS"].version == "3"
    error_message = "A function reads another version than the one that was looked up."
  }

  assert {
    condition     = keys(output.queues) == ["advance", "confirm", "publish", "receipt", "resubmit", "transfer"]
    error_message = "A kind of work has no queue."
  }
}

run "queues_outlive_the_image" {
  command = plan

  variables {
    image = null
  }

  assert {
    condition     = output.queues == run.everything.queues && { for kind, q in module.queue : kind => q.host } == { for kind, name in local.queues : kind => "fencepost-${name}-123456789012.europe-west1.run.app" }
    error_message = "Without an image queues are destroyed, and Cloud Tasks refuses their names for days; or their tasks go elsewhere afterwards."
  }
}

run "queues_outlive_features" {
  command = plan

  assert {
    condition     = output.queues == run.everything.queues
    error_message = "A feature that is taken back destroys queues, and Cloud Tasks refuses their names for days."
  }

  assert {
    condition     = alltrue([for kind in ["publish", "transfer"] : length(module.queue[kind].enqueuers) == 0])
    error_message = "A function may make tasks that nothing serves."
  }
}

run "queues_after_their_loss" {
  command = plan

  variables {
    queue_prefix = "fencepost-again"
  }

  assert {
    condition     = local.environment.FENCEPOST_TASKS_QUEUE_PREFIX == "fencepost-again" && alltrue([for kind, names in output.queues : names == ["fencepost-again-${kind}-0"]])
    error_message = "Functions make tasks on queues that Terraform does not make."
  }

  assert {
    condition     = { for kind, q in module.queue : kind => q.host } == { for kind, name in local.queues : kind => "fencepost-${name}-123456789012.europe-west1.run.app" }
    error_message = "Queues of another name send their tasks elsewhere."
  }
}
