# The house as a whole, in each environment: terraform test -var-file=environments/prod.tfvars

mock_provider "google" {
  source          = "./tests/mocks"
  override_during = plan
}

variables {
  project      = "project-1"
  domain       = "api.example.com"
  chain_id     = 1
  operators    = ["ada@example.com", "ben@example.com"]
  readers      = ["ada@example.com"]
  image        = "europe-west1-docker.pkg.dev/project-1/fencepost/functions@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  signing_keys = ["treasury"]
  egress       = { hosts = ["node.example.com"] }

  # Of each secret, as after its value was given.
  secret_versions = { for id in ["rpc-urls", "intent-mac-keys", "chains", "signer-keys", "signer-remotes", "handler-secrets", "event-secrets", "trading-secret"] : id => "1" }

  collector_image = "us-docker.pkg.dev/cloud-ops-agents-artifacts/google-cloud-opentelemetry-collector/otelcol-google@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

  transfers = {
    trading_url    = "https://core.example.com"
    users_issuer   = "https://users.example.com"
    users_jwks_url = "https://users.example.com/jwks"
    users_audience = "https://exchange.example.com"
  }

  events = {
    mode      = "webhook"
    endpoints = { shop = "https://shop.example.com/hook" }
    callers   = { shop = ["shop@project-1.iam.gserviceaccount.com"] }
  }
}

run "everything" {
  command = plan

  # Each function that jobs call has an address of its own.
  override_resource {
    target          = module.function["sweep"].google_cloud_run_v2_service.this
    override_during = plan
    values          = { uri = "https://sweep.example.run.app" }
  }

  override_resource {
    target          = module.function["conservation"].google_cloud_run_v2_service.this
    override_during = plan
    values          = { uri = "https://conservation.example.run.app" }
  }

  override_resource {
    target          = module.function["conservation-full"].google_cloud_run_v2_service.this
    override_during = plan
    values          = { uri = "https://conservation-full.example.run.app" }
  }

  assert {
    condition     = length(distinct([for f in module.function : f.account])) == length(local.functions)
    error_message = "Two functions run as the same account."
  }

  assert {
    condition     = alltrue([for name, f in module.function : f.account == "fencepost-${name}@project-1.iam.gserviceaccount.com"])
    error_message = "A function does not run as its own account."
  }

  assert {
    condition     = alltrue([for name, f in module.function : length(f.invokers) == (local.functions[name].public ? 0 : 1)])
    error_message = "A function is invoked by more or fewer than the one account that its work comes from."
  }

  assert {
    condition = alltrue([for f in module.function : length(setsubtract(f.invokers, [
      local.members["tasks"], local.members["scheduler"],
    ])) == 0])
    error_message = "Somebody but the tasks account and the scheduler's may invoke a function."
  }

  assert {
    condition = alltrue([for name, f in module.function : local.functions[name].public
      ? f.ingress == "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER" && !f.checks_callers
    : f.ingress == "INGRESS_TRAFFIC_INTERNAL_ONLY" && f.checks_callers])
    error_message = "A public function can be reached past the load balancer, or an internal one without a token."
  }

  assert {
    condition     = alltrue([for f in fileset(path.root, "**/*.tf") : !strcontains(file(f), "allUsers") && !strcontains(file(f), "allAuthenticatedUsers")])
    error_message = "Something is granted to everybody."
  }

  assert {
    condition     = alltrue([for r in output.public_routes : local.functions[r.function].public && !strcontains(r.path, "internal/")])
    error_message = "The URL map leads to an internal function."
  }

  assert {
    condition     = toset([for r in output.public_routes : r.function]) == toset([for name, f in local.functions : name if f.public])
    error_message = "A public function has no path, or an internal one has."
  }

  assert {
    condition     = [for r in output.public_routes : r.path if r.function == "cancel" || r.path == "/api/v1/tx/"] == ["/api/v1/tx/{txId}/cancel", "/api/v1/tx/"]
    error_message = "The path of a cancel must be tried before the paths of queries, which begin as it does."
  }

  assert {
    condition     = alltrue([for kind, names in output.queues : names == [for i in range(var.queue_shards) : "fencepost-${kind}-${i}"]])
    error_message = "Queues are not named as the code looks for them: prefix, function, shard."
  }

  assert {
    condition     = toset(keys(output.queues)) == toset(keys(local.queue.max_concurrent_dispatches))
    error_message = "A kind of work in queues.json has no queue, or a queue has no settings there."
  }

  assert {
    condition     = alltrue([for kind, q in module.queue : q.host == "${module.function[kind == "transfer" ? "transfer-step" : kind].name}-123456789012.europe-west1.run.app"])
    error_message = "A queue sends its tasks to another function than the one that serves it."
  }

  assert {
    condition     = alltrue([for kind, q in module.queue : toset(q.enqueuers) == toset([for name, f in local.functions : local.members[name] if contains(f.enqueues, kind)])])
    error_message = "A function may make tasks that it never makes, or may not make those it does."
  }

  assert {
    condition     = !contains(keys(google_service_account_iam_member.acts_as_tasks), "query") && !contains(keys(google_service_account_iam_member.acts_as_tasks), "conservation")
    error_message = "A function that makes no tasks may act as the tasks account."
  }

  assert {
    condition = { for name in keys(local.functions) : name => regex("transaction_timeout=([0-9]+)", local.own_environment[name].FENCEPOST_DATABASE_URL)[0] } == {
      for name in keys(local.functions) : name => lookup({ conservation = "60000", conservation-full = "1800000" }, name, "10000")
    }
    error_message = "A function whose client is frozen in a transaction keeps others from its rows for longer than a lease."
  }

  assert {
    condition     = alltrue([for job in module.schedule : job.token.service_account_email == "fencepost-scheduler@project-1.iam.gserviceaccount.com" && job.token.audience == local.internal_audience])
    error_message = "A scheduled job calls without the scheduler's token."
  }

  assert {
    condition = { for name, job in module.schedule : name => job.uri } == {
      sweep             = "https://sweep.example.run.app/internal/sweep"
      conservation      = "https://conservation.example.run.app/internal/conservation"
      conservation-full = "https://conservation-full.example.run.app/internal/conservation"
    }
    error_message = "A job calls another address than its function's."
  }

  assert {
    condition     = toset(keys(module.schedule)) == toset([for name, f in local.functions : name if f.scheduled])
    error_message = "A function that waits for the scheduler has no job, or a job has no function."
  }

  assert {
    condition     = lower(google_storage_bucket.mark.location) == var.region && google_storage_bucket.mark.uniform_bucket_level_access && google_storage_bucket.mark.public_access_prevention == "enforced"
    error_message = "The mark is elsewhere than the deployment, or not closed to the public."
  }

  assert {
    condition     = google_storage_bucket.mark.versioning[0].enabled && length(google_storage_bucket.mark.lifecycle_rule) == 0 && !google_storage_bucket.mark.force_destroy
    error_message = "A mark can be lost: its versions are not kept, or a rule deletes them."
  }

  assert {
    condition = { for name, g in google_storage_bucket_iam_member.mark_writer : name => "${g.role} ${g.member}" } == {
      for name in ["admin", "migrate", "sweep"] : name => "roles/storage.objectUser serviceAccount:fencepost-${name}@project-1.iam.gserviceaccount.com"
    }
    error_message = "Not the sweep, admin and the migration job alone may write the mark."
  }

  assert {
    condition     = setunion(keys(google_storage_bucket_iam_member.mark_reader), keys(google_storage_bucket_iam_member.mark_writer)) == setunion(keys(local.functions), ["migrate"]) && alltrue([for g in google_storage_bucket_iam_member.mark_reader : g.role == "roles/storage.objectViewer"])
    error_message = "A function cannot read the mark that it compares the database with, or a reader may do more."
  }

  assert {
    condition     = local.environment["FENCEPOST_MARK_BUCKET"] == google_storage_bucket.mark.name
    error_message = "The functions are not told of the mark."
  }

  assert {
    condition     = alltrue([for key in keys(google_secret_manager_secret_iam_member.reader) : !startswith(key, "signer-keys ") || key == "signer-keys advance"])
    error_message = "A function that never signs may read the keys."
  }

  assert {
    condition     = toset([for key in keys(google_secret_manager_secret_iam_member.reader) : trimprefix(key, "trading-secret ") if startswith(key, "trading-secret ")]) == toset(["admin", "conservation", "conservation-full", "transfer", "transfer-step"])
    error_message = "A function that never calls the trading core may do so, or one that does cannot."
  }

  assert {
    condition     = alltrue([for name in keys(local.functions) : contains(keys(local.own_environment[name]), "FENCEPOST_TRADING_URL") == contains(keys(local.secrets_of[name]), "FENCEPOST_TRADING_SECRET")])
    error_message = "A function has the trading core's URL without its secret, and does not start; or the secret for nothing."
  }

  assert {
    condition     = [for name in keys(local.functions) : name if !contains(keys(local.secrets_of[name]), "FENCEPOST_RPC_URLS")] == ["cancel", "create", "publish", "query"]
    error_message = "A function that queries no node has the nodes' URLs, or one that does has none."
  }

  assert {
    condition     = [for name in keys(local.functions) : name if contains(keys(local.secrets_of[name]), "FENCEPOST_INTENTS_MAC_KEYS")] == ["admin", "advance", "create", "transfer", "transfer-step"]
    error_message = "Those that accept intents, and the one that signs, must have the keys of the MACs, and no other function."
  }

  assert {
    condition     = [for name in keys(local.functions) : name if contains(keys(local.secrets_of[name]), "FENCEPOST_EVENTS_WEBHOOK_SECRETS")] == ["publish"]
    error_message = "Not publish alone can sign what endpoints are told."
  }

  assert {
    condition     = length(google_pubsub_topic_iam_member.publisher) == 0 && local.environment["FENCEPOST_EVENTS_WEBHOOK_URLS"] == "shop=https://shop.example.com/hook" && local.own_environment["publish"]["FENCEPOST_EVENTS_WEBHOOK_CALLERS"] == "shop=shop@project-1.iam.gserviceaccount.com"
    error_message = "Endpoints are not told as the variable says, or somebody may publish who need not."
  }

  assert {
    condition     = toset([for g in google_project_iam_member.account : g.role if g.member == "user:ada@example.com"]) == toset(["roles/cloudsql.client", "roles/cloudsql.instanceUser", "roles/cloudsql.studioUser"])
    error_message = "A reader of the database cannot log in, or may do more."
  }

  assert {
    condition     = !contains(keys(google_secret_manager_secret.value), "signer-keys")
    error_message = "There is a secret for keys although the HSM has them."
  }

  assert {
    condition     = output.connections.most <= output.connections.room
    error_message = "This environment's functions can open more connections than its database takes."
  }

  assert {
    condition     = var.environment != "prod" || !var.armor_preview
    error_message = "In prod Cloud Armor must refuse, not only log."
  }

  assert {
    condition     = var.environment != "prod" || (var.deletion_protection && var.database.regional && var.database.log_retention_days == 7)
    error_message = "In prod the database must be protected, have a standby and a week of logs to restore from."
  }

  assert {
    condition = toset([for url in output.runbooks : trimsuffix(basename(url), ".md")]) == toset([
      "admin-act", "balance", "carried-out-twice", "chain-unread", "fee-ceiling", "gas-bump-held", "intent-forged", "intent-unproved", "mempool-lost", "refusals",
      "conservation-full-missed", "conservation-missed", "conservation-violated", "database", "events-late", "fenced-writes", "function-errors", "held-intents", "in-flight-age",
      "mark-uncompared", "metrics-absent", "node-excluded", "payout-blocked", "protect", "queue-full", "receipt-backlog", "refund-failing", "restored-database",
      "resubmits", "signer-failing", "stuck", "sweep-missed", "transfer-stuck", "unreachable", "unusual-transfers", "waiting",
    ])
    error_message = "The alerts are not those that have a page."
  }

  assert {
    condition     = output.deployment.environment == var.environment && output.deployment.instance == "fencepost" && keys(output.deployment.services) == keys(local.functions) && output.deployment.services["sweep"] == { name = "fencepost-sweep", public = false, scheduled = true }
    error_message = "The script that checks the deployment does not learn of each function."
  }

  assert {
    condition     = var.environment == "dev" || alltrue([for name in ["create", "query", "cancel", "transfer"] : local.functions[name].min_instances > 0])
    error_message = "A caller waits for a cold start."
  }
}

run "without_transfers" {
  command = plan

  variables {
    transfers = null
  }

  assert {
    condition     = length(setintersection(keys(module.function), ["transfer", "transfer-step", "conservation", "conservation-full"])) == 0
    error_message = "A function of transfers is deployed where there is no trading core."
  }

  assert {
    condition     = !contains(keys(google_secret_manager_secret.value), "trading-secret") && !contains(keys(module.schedule), "conservation")
    error_message = "A secret or a job of transfers is there without their functions."
  }

  assert {
    condition     = alltrue([for url in output.runbooks : !strcontains(url, "transfer") && !strcontains(url, "conservation")])
    error_message = "There are alerts upon transfers where there are none."
  }

  assert {
    condition     = !anytrue([for name in flatten([for own in values(local.own_environment) : keys(own)]) : startswith(name, "FENCEPOST_TRADING_") || startswith(name, "FENCEPOST_AUTH_USERS_")])
    error_message = "Settings of transfers are set without their functions."
  }
}

run "without_events" {
  command = plan

  variables {
    events = null
  }

  assert {
    condition     = !contains(keys(module.function), "publish") && length(module.queue["publish"].enqueuers) == 0 && !contains(keys(google_secret_manager_secret.value), "event-secrets") && !contains(keys(local.environment), "FENCEPOST_EVENTS_MODE")
    error_message = "Something tells of events that nobody asked for."
  }

  assert {
    condition     = alltrue([for f in local.functions : !contains(f.enqueues, "publish")])
    error_message = "A function may make tasks on a queue that nothing serves."
  }
}

run "events_to_the_topic" {
  command = plan

  variables {
    events = { mode = "mq_outbox" }
  }

  assert {
    condition     = keys(google_pubsub_topic_iam_member.publisher) == ["publish"] && contains(keys(local.environment), "FENCEPOST_EVENTS_PUBSUB_TOPIC") && !contains(keys(google_secret_manager_secret.value), "event-secrets")
    error_message = "Not publish alone publishes, or it does not know where."
  }
}

run "before_there_is_an_image" {
  command = plan

  variables {
    image = null
  }

  assert {
    condition     = length(module.function) == 0 && length(module.schedule) == 0 && output.address == null
    error_message = "Something is deployed that needs an image."
  }

  assert {
    condition     = length(output.secrets) > 0 && output.repository == "europe-west1-docker.pkg.dev/project-1/fencepost"
    error_message = "The first apply must make what the image and the secrets are put in."
  }
}

run "migration_goes_ahead" {
  command = plan

  variables {
    image         = null
    migrate_image = "europe-west1-docker.pkg.dev/project-1/fencepost/functions@sha256:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
  }

  assert {
    condition     = output.migration_job == "fencepost-migrate" && length(module.function) == 0
    error_message = "The schema cannot be made before the functions are there."
  }
}

run "after_a_restore" {
  command = plan

  variables {
    database_instance_name = "fencepost-restored"
    database               = { region = "europe-west4", max_connections = 800 }
  }

  assert {
    condition     = module.database.instance == "fencepost-restored" && module.function["query"].name == "fencepost-query"
    error_message = "The functions cannot be pointed at a restored instance, or everything else gets another name too."
  }
}

run "mark_outlives_the_region" {
  command = plan

  variables {
    mark_location = "EU"
    mark_bucket   = "project-1-old-mark"
  }

  assert {
    condition     = google_storage_bucket.mark.location == "EU" && google_storage_bucket.mark.name == "project-1-old-mark" && local.environment["FENCEPOST_MARK_BUCKET"] == "project-1-old-mark"
    error_message = "The mark of a region that was lost cannot be read by the deployment in another one."
  }
}

run "prod_is_protected" {
  command = plan

  variables {
    environment         = "prod"
    oidc                = { open = true }
    deletion_protection = false
  }

  expect_failures = [var.deletion_protection]
}

run "image_by_tag" {
  command = plan

  variables {
    image = "europe-west1-docker.pkg.dev/project-1/fencepost/functions:latest"
  }

  expect_failures = [var.image]
}

run "secret_among_the_settings" {
  command = plan

  variables {
    settings = { FENCEPOST_RPC_URLS = "https://node.example.com/key" }
  }

  expect_failures = [var.settings]
}

run "no_signer_of_that_kind" {
  command = plan

  variables {
    signers = ["paper"]
  }

  expect_failures = [var.signers]
}

run "kms_without_a_key" {
  command = plan

  variables {
    signers      = ["kms"]
    signing_keys = []
  }

  expect_failures = [var.signers]
}

run "kms" {
  command = plan

  variables {
    signers      = ["kms"]
    signing_keys = ["treasury"]
  }

  assert {
    condition     = !contains(keys(google_secret_manager_secret.value), "signer-keys") && alltrue([for name in keys(local.functions) : length(local.signer_files_of[name]) == 0])
    error_message = "A function is given keys although the HSM has them."
  }

  assert {
    condition     = toset([for name, role in module.signer.grants : "${name} ${role}"]) == toset(["treasury admin roles/cloudkms.publicKeyViewer", "treasury advance roles/cloudkms.signer"])
    error_message = "Another function than the one that signs, or the one that registers, may use a key."
  }
}

run "remote_signers" {
  command = plan

  variables {
    signers = ["remote"]
    egress  = { hosts = ["node.example.com"], signer_hosts = ["signer.example.com"] }
  }

  assert {
    condition     = toset(flatten([for name, files in local.signer_files_of : [for s in files : "${name} ${s.variable}"]])) == toset(["admin FENCEPOST_SIGNER_REMOTES_FILE", "advance FENCEPOST_SIGNER_REMOTES_FILE"])
    error_message = "A function that neither signs nor registers may read how services are asked to sign, or one that does may not."
  }
}

run "more_chains" {
  command = plan

  variables {
    more_chains = true
  }

  assert {
    condition     = contains(keys(google_secret_manager_secret.value), "chains")
    error_message = "There is no secret for the chains."
  }

  assert {
    condition     = [for name in keys(local.functions) : name if !contains(keys(local.secrets_of[name]), "FENCEPOST_CHAINS")] == ["cancel", "publish", "query"]
    error_message = "A function that queries no node has the nodes' URLs, or create does not know the chains."
  }
}

run "chains_in_the_open" {
  command = plan

  variables {
    settings = { FENCEPOST_CHAINS = "[]" }
  }

  expect_failures = [var.settings]
}

run "latest_secret" {
  command = plan

  variables {
    secret_versions = { rpc-urls = "latest" }
  }

  expect_failures = [var.secret_versions]
}

run "old_postgres" {
  command = plan

  variables {
    database = { version = "POSTGRES_16" }
  }

  expect_failures = [var.database]
}
