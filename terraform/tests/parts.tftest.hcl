# Each module by itself, down to the arguments that the code or the rules of the house rely on.

mock_provider "google" {
  source          = "./tests/mocks"
  override_during = plan

  mock_resource "google_sql_database_instance" {
    defaults = {
      connection_name = "project-1:europe-west1:fencepost"
    }
  }
}

# Those of the root, which the modules do not read.
variables {
  project   = "project-1"
  domain    = "api.example.com"
  chain_id  = 1
  operators = ["ada@example.com"]
  region    = "europe-west1"
  name      = "fencepost"
}

run "queue" {
  command = plan

  module {
    source = "./modules/queue"
  }

  variables {
    prefix                    = "fencepost-advance"
    shards                    = 3
    host                      = "advance.example.run.app"
    settings                  = { max_attempts = -1, min_backoff = "0.100s", max_backoff = "10s", max_doublings = 5, max_dispatches_per_second = 500 }
    max_concurrent_dispatches = 100
    capacity                  = 300
    enqueuers                 = { create = "serviceAccount:create@project-1.iam.gserviceaccount.com" }
  }

  assert {
    condition     = alltrue([for q in google_cloud_tasks_queue.shard : q.retry_config[0].max_attempts == -1 && q.retry_config[0].max_retry_duration == "0s"])
    error_message = "A queue gives tasks up."
  }

  assert {
    condition     = alltrue([for q in google_cloud_tasks_queue.shard : tonumber(trimsuffix(q.retry_config[0].max_backoff, "s")) <= 10])
    error_message = "A queue waits for more than ten seconds between two tries."
  }

  assert {
    condition     = alltrue([for q in google_cloud_tasks_queue.shard : q.rate_limits[0].max_dispatches_per_second <= 500 && q.rate_limits[0].max_concurrent_dispatches == 100])
    error_message = "A queue has other limits than it was told, or more than the service allows."
  }

  assert {
    condition = alltrue([for q in google_cloud_tasks_queue.shard :
      q.http_target[0].uri_override[0].host == "advance.example.run.app" && q.http_target[0].uri_override[0].scheme == "HTTPS" && q.http_target[0].uri_override[0].uri_override_enforce_mode == "ALWAYS"
    ])
    error_message = "A maker of tasks can choose where they go."
  }

  assert {
    condition     = [for q in google_cloud_tasks_queue.shard : q.name] == ["fencepost-advance-0", "fencepost-advance-1", "fencepost-advance-2"] && length(google_cloud_tasks_queue_iam_member.enqueuer) == 3
    error_message = "A shard is missing, or nobody may make tasks on it."
  }
}

run "queue_that_gives_up" {
  command = plan

  module {
    source = "./modules/queue"
  }

  variables {
    prefix                    = "fencepost-advance"
    shards                    = 1
    host                      = "advance.example.run.app"
    settings                  = { max_attempts = 100, min_backoff = "0.100s", max_backoff = "60s", max_doublings = 5, max_dispatches_per_second = 500 }
    max_concurrent_dispatches = 100
    capacity                  = 100
    enqueuers                 = {}
  }

  expect_failures = [var.settings]
}

run "queue_beyond_its_function" {
  command = plan

  module {
    source = "./modules/queue"
  }

  variables {
    prefix                    = "fencepost-advance"
    shards                    = 3
    host                      = "advance.example.run.app"
    settings                  = { max_attempts = -1, min_backoff = "0.100s", max_backoff = "10s", max_doublings = 5, max_dispatches_per_second = 500 }
    max_concurrent_dispatches = 100
    capacity                  = 299
    enqueuers                 = {}
  }

  expect_failures = [google_cloud_tasks_queue.shard]
}

run "database" {
  command = plan

  module {
    source = "./modules/database"
  }

  variables {
    instance_name       = "fencepost-restored"
    network             = "projects/project-1/global/networks/fencepost"
    size                = { version = "POSTGRES_17", tier = "db-custom-2-7680", regional = true, disk_gb = 20, max_connections = 400, connections_reserved = 20, log_retention_days = 7, backups = 14, pgaudit = "ddl,role" }
    connections         = 380
    deletion_protection = true
    accounts            = { create = "fencepost-create@project-1.iam.gserviceaccount.com", advance = "fencepost-advance@project-1.iam.gserviceaccount.com" }
    migrator_account    = "fencepost-migrate@project-1.iam.gserviceaccount.com"
    readers             = ["ada@example.com"]
    encryption_key      = null
  }

  assert {
    condition     = google_sql_database_instance.this.deletion_protection && google_sql_database_instance.this.settings[0].deletion_protection_enabled
    error_message = "The database can be destroyed."
  }

  assert {
    condition     = google_sql_database_instance.this.settings[0].availability_type == "REGIONAL" && google_sql_database_instance.this.settings[0].backup_configuration[0].point_in_time_recovery_enabled
    error_message = "The database has no standby, or cannot be restored to a point in time."
  }

  assert {
    condition     = !google_sql_database_instance.this.settings[0].ip_configuration[0].ipv4_enabled && google_sql_database_instance.this.settings[0].connector_enforcement == "REQUIRED"
    error_message = "The database has a public address, or takes connections past the connector."
  }

  assert {
    condition     = contains([for f in google_sql_database_instance.this.settings[0].database_flags : "${f.name}=${f.value}"], "cloudsql.iam_authentication=on") && contains([for f in google_sql_database_instance.this.settings[0].database_flags : "${f.name}=${f.value}"], "max_connections=400")
    error_message = "The server does not know the accounts, or takes another number of connections than was counted with."
  }

  assert {
    condition     = length(setsubtract(["log_connections=on", "log_disconnections=on", "cloudsql.enable_pgaudit=on", "pgaudit.log=ddl,role"], [for f in google_sql_database_instance.this.settings[0].database_flags : "${f.name}=${f.value}"])) == 0
    error_message = "The server does not log who logs in, or who changes a table or a right."
  }

  assert {
    condition     = alltrue([for u in google_sql_user.function : u.type == "CLOUD_IAM_SERVICE_ACCOUNT" && u.password == null && u.database_roles == null])
    error_message = "A function logs in by a password, or as more than itself."
  }

  assert {
    condition     = alltrue([for u in google_sql_user.reader : u.type == "CLOUD_IAM_USER" && u.password == null && u.database_roles == null]) && output.readers == ["ada@example.com"]
    error_message = "A reader logs in by a password, or as more than a reader."
  }

  assert {
    condition     = output.users["create"] == "fencepost-create@project-1.iam"
    error_message = "A user's name in Postgres is its account without .gserviceaccount.com."
  }
}

run "database_with_a_replica" {
  command = plan

  module {
    source = "./modules/database"
  }

  variables {
    instance_name       = "fencepost"
    network             = "projects/project-1/global/networks/fencepost"
    size                = { version = "POSTGRES_17", tier = "db-custom-2-7680", regional = true, disk_gb = 20, max_connections = 400, connections_reserved = 20, log_retention_days = 7, backups = 14, pgaudit = "ddl,role", replica_region = "europe-west4" }
    connections         = 380
    deletion_protection = true
    accounts            = {}
    migrator_account    = "fencepost-migrate@project-1.iam.gserviceaccount.com"
    readers             = []
    encryption_key      = null
  }

  assert {
    condition     = google_sql_database_instance.replica[0].region == "europe-west4" && google_sql_database_instance.replica[0].master_instance_name == "fencepost" && google_sql_database_instance.replica[0].database_version == google_sql_database_instance.this.database_version && google_sql_database_instance.replica[0].deletion_protection && output.replica == "fencepost-replica"
    error_message = "The replica is of another database, in the same region, or can be destroyed."
  }

  assert {
    condition     = !google_sql_database_instance.replica[0].settings[0].ip_configuration[0].ipv4_enabled && google_sql_database_instance.replica[0].settings[0].connector_enforcement == "REQUIRED" && jsonencode(google_sql_database_instance.replica[0].settings[0].database_flags) == jsonencode(google_sql_database_instance.this.settings[0].database_flags) && google_sql_database_instance.replica[0].settings[0].tier == google_sql_database_instance.this.settings[0].tier
    error_message = "A promoted replica would let others in, or take less work, than the primary."
  }
}

run "replica_in_the_same_region" {
  command = plan

  module {
    source = "./modules/database"
  }

  variables {
    instance_name       = "fencepost"
    network             = "projects/project-1/global/networks/fencepost"
    size                = { version = "POSTGRES_17", tier = "db-custom-2-7680", regional = true, disk_gb = 20, max_connections = 400, connections_reserved = 20, log_retention_days = 7, backups = 14, pgaudit = "ddl,role", replica_region = "europe-west1" }
    connections         = 380
    deletion_protection = true
    accounts            = {}
    migrator_account    = "fencepost-migrate@project-1.iam.gserviceaccount.com"
    readers             = []
    encryption_key      = null
  }

  expect_failures = [google_sql_database_instance.replica]
}

run "replica_without_its_key" {
  command = plan

  module {
    source = "./modules/database"
  }

  variables {
    instance_name       = "fencepost"
    network             = "projects/project-1/global/networks/fencepost"
    size                = { version = "POSTGRES_17", tier = "db-custom-2-7680", regional = true, disk_gb = 20, max_connections = 400, connections_reserved = 20, log_retention_days = 7, backups = 14, pgaudit = "ddl,role", replica_region = "europe-west4" }
    connections         = 380
    deletion_protection = true
    accounts            = {}
    migrator_account    = "fencepost-migrate@project-1.iam.gserviceaccount.com"
    readers             = []
    encryption_key      = "projects/project-2/locations/europe-west1/keyRings/own/cryptoKeys/fencepost"
  }

  expect_failures = [google_sql_database_instance.replica]
}

run "database_with_too_few_connections" {
  command = plan

  module {
    source = "./modules/database"
  }

  variables {
    instance_name       = "fencepost-restored"
    network             = "projects/project-1/global/networks/fencepost"
    size                = { version = "POSTGRES_17", tier = "db-custom-2-7680", regional = true, disk_gb = 20, max_connections = 400, connections_reserved = 20, log_retention_days = 7, backups = 14, pgaudit = "ddl,role" }
    connections         = 381
    deletion_protection = true
    accounts            = {}
    migrator_account    = "fencepost-migrate@project-1.iam.gserviceaccount.com"
    readers             = ["ada@example.com"]
    encryption_key      = null
  }

  expect_failures = [google_sql_database_instance.this]
}

run "migration" {
  command = plan

  module {
    source = "./modules/migration"
  }

  variables {
    name           = "fencepost-migrate"
    image          = "image@sha256:0"
    account        = "fencepost-migrate@project-1.iam.gserviceaccount.com"
    network        = "network"
    subnet         = "subnet"
    instance       = "project-1:europe-west1:fencepost"
    database_url   = "user=fencepost-migrate@project-1.iam dbname=fencepost sslmode=disable"
    database_roles = { query = "fencepost-query@project-1.iam", create = "fencepost-create@project-1.iam" }
    readers        = ["ada@example.com"]
    environment    = { FENCEPOST_MARK_BUCKET = "marks" }
    attested       = true
  }

  assert {
    condition     = google_cloud_run_v2_job.this.binary_authorization[0].use_default
    error_message = "The migration runs an image that nobody attested."
  }

  assert {
    condition     = google_cloud_run_v2_job.this.template[0].template[0].vpc_access[0].egress == "ALL_TRAFFIC"
    error_message = "The migration has another way out than the network's."
  }

  assert {
    condition     = contains([for e in google_cloud_run_v2_job.this.template[0].template[0].containers[0].env : "${e.name}=${coalesce(e.value, "-")}"], "FENCEPOST_MARK_BUCKET=marks")
    error_message = "The migration job is not told where the mark is."
  }

  assert {
    condition     = google_cloud_run_v2_job.this.template[0].template[0].containers[0].command == tolist(["/migrate"]) && google_cloud_run_v2_job.this.template[0].template[0].containers[0].args == tolist(["up", "--grant-to", "create=fencepost-create@project-1.iam,query=fencepost-query@project-1.iam", "--grant-read-to", "ada@example.com"])
    error_message = "The migration does not say who may read and write what it makes."
  }

  assert {
    condition     = google_cloud_run_v2_job.this.template[0].template[0].max_retries == 0 && google_cloud_run_v2_job.this.template[0].template[0].service_account == "fencepost-migrate@project-1.iam.gserviceaccount.com"
    error_message = "A migration that fails is run again unasked, or is run as another than the tables' owner."
  }
}

run "public_function" {
  command = plan

  module {
    source = "./modules/function"
  }

  variables {
    name                = "fencepost-create"
    target              = "create"
    public              = true
    unchecked           = false
    image               = "image@sha256:0"
    account             = "fencepost-create@project-1.iam.gserviceaccount.com"
    network             = "network"
    subnet              = "subnet"
    timeout             = 60
    concurrency         = 40
    min_instances       = 0
    max_instances       = 7
    environment         = { FENCEPOST_CHAIN_ID = "1" }
    secrets             = { FENCEPOST_RPC_URLS = { secret = "fencepost-rpc-urls", version = "3" } }
    signer_files        = {}
    audience            = "https://internal.invalid"
    invokers            = {}
    collector_image     = null
    attested            = true
    deletion_protection = true
  }

  assert {
    condition     = google_cloud_run_v2_service.this.binary_authorization[0].use_default
    error_message = "The function runs an image that nobody attested."
  }

  assert {
    # functions.startPatience is 45 s, after which the path answers 200 without a database.
    condition = alltrue([for p in google_cloud_run_v2_service.this.template[0].containers[0].startup_probe :
      p.http_get[0].path == "/startupz" && p.timeout_seconds <= p.period_seconds && p.period_seconds * p.failure_threshold >= 50 && p.period_seconds * p.failure_threshold <= 240
    ]) && length(google_cloud_run_v2_service.this.template[0].containers[0].startup_probe) == 1
    error_message = "The startup probe gives up before a new instance's network is there, or does not ask for the database."
  }

  assert {
    condition     = google_cloud_run_v2_service.this.template[0].vpc_access[0].egress == "ALL_TRAFFIC"
    error_message = "The function has another way out than the network's."
  }

  assert {
    condition     = google_cloud_run_v2_service.this.default_uri_disabled && google_cloud_run_v2_service.this.ingress == "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER"
    error_message = "A public function can be reached past the load balancer."
  }

  assert {
    condition     = length(google_cloud_run_v2_service_iam_member.invoker) == 0
    error_message = "A public function grants somebody the right to invoke it."
  }

  assert {
    condition     = google_cloud_run_v2_service.this.scaling[0].max_instance_count == 7 && google_cloud_run_v2_service.this.template[0].scaling[0].max_instance_count == 7
    error_message = "Two revisions at once could open more connections than were counted."
  }

  assert {
    condition     = google_cloud_run_v2_service.this.template[0].containers[0].resources[0].cpu_idle && google_cloud_run_v2_service.this.template[0].containers[0].resources[0].startup_cpu_boost
    error_message = "An idle instance is billed for its processor."
  }

  assert {
    condition     = { for e in google_cloud_run_v2_service.this.template[0].containers[0].env : e.name => try(e.value_source[0].secret_key_ref[0].version, e.value) } == { FUNCTION_TARGET = "create", FENCEPOST_CHAIN_ID = "1", FENCEPOST_RPC_URLS = "3" }
    error_message = "The environment is not what was given, or a secret is not read by its version."
  }

  assert {
    condition     = google_cloud_run_v2_service.this.template[0].vpc_access[0].network_interfaces[0].subnetwork == "subnet" && google_cloud_run_v2_service.this.template[0].vpc_access[0].connector == null
    error_message = "The way to the database is not a direct one."
  }

  assert {
    condition     = length(google_cloud_run_v2_service.this.template[0].containers) == 1 && length(google_cloud_run_v2_service.this.template[0].volumes) == 0
    error_message = "There is a collector without an image, or a volume without keys."
  }
}

run "internal_function" {
  command = plan

  module {
    source = "./modules/function"
  }

  variables {
    name          = "fencepost-advance"
    target        = "advance"
    public        = false
    unchecked     = false
    image         = "image@sha256:0"
    account       = "fencepost-advance@project-1.iam.gserviceaccount.com"
    network       = "network"
    subnet        = "subnet"
    timeout       = 60
    concurrency   = 40
    min_instances = 0
    max_instances = 7
    environment   = {}
    secrets       = {}
    signer_files = {
      signer-keys    = { secret = "fencepost-signer-keys", version = "2", variable = "FENCEPOST_SIGNER_LOCAL_KEYS_FILE" }
      signer-remotes = { secret = "fencepost-signer-remotes", version = "5", variable = "FENCEPOST_SIGNER_REMOTES_FILE" }
    }
    audience            = "https://internal.invalid"
    invokers            = { tasks = "serviceAccount:fencepost-tasks@project-1.iam.gserviceaccount.com" }
    collector_image     = "collector:1"
    attested            = false
    deletion_protection = true
  }

  assert {
    condition     = google_cloud_run_v2_service.this.ingress == "INGRESS_TRAFFIC_INTERNAL_ONLY" && !google_cloud_run_v2_service.this.invoker_iam_disabled && !google_cloud_run_v2_service.this.default_uri_disabled
    error_message = "An internal function is open, or tasks cannot reach it."
  }

  assert {
    condition     = google_cloud_run_v2_service.this.custom_audiences == tolist(["https://internal.invalid"])
    error_message = "Cloud Run would refuse the tokens that tasks bring, before the function sees them."
  }

  assert {
    condition     = [for g in google_cloud_run_v2_service_iam_member.invoker : "${g.role} ${g.member}"] == ["roles/run.invoker serviceAccount:fencepost-tasks@project-1.iam.gserviceaccount.com"]
    error_message = "Another account than the tasks' may invoke it."
  }

  assert {
    condition     = google_cloud_run_v2_service.this.template[0].volumes[0].secret[0].secret == "fencepost-signer-keys" && google_cloud_run_v2_service.this.template[0].volumes[0].secret[0].items[0].version == "2" && contains([for e in google_cloud_run_v2_service.this.template[0].containers[0].env : "${e.name}=${e.value}"], "FENCEPOST_SIGNER_LOCAL_KEYS_FILE=/secrets/signer-keys/file")
    error_message = "The keys are not where the setting says."
  }

  assert {
    condition     = google_cloud_run_v2_service.this.template[0].volumes[1].secret[0].items[0].version == "5" && contains([for e in google_cloud_run_v2_service.this.template[0].containers[0].env : "${e.name}=${e.value}"], "FENCEPOST_SIGNER_REMOTES_FILE=/secrets/signer-remotes/file")
    error_message = "The list of remote signers is not where the setting says."
  }

  assert {
    # The last octal digit's highest bit.
    condition     = floor(google_cloud_run_v2_service.this.template[0].volumes[0].secret[0].default_mode / 4) % 2 == 1 && google_cloud_run_v2_service.this.template[0].volumes[0].secret[0].items[0].mode == null
    error_message = "Only root may read the keys, and the image's user is another."
  }

  assert {
    condition     = length(google_cloud_run_v2_service.this.template[0].containers[0].volume_mounts) == 2 && length(google_cloud_run_v2_service.this.template[0].containers[1].volume_mounts) == 0
    error_message = "The collector has the keys too, or the function has them not."
  }

  assert {
    condition     = google_cloud_run_v2_service.this.template[0].containers[1].name == "collector" && contains(google_cloud_run_v2_service.this.template[0].containers[0].depends_on, "collector") && length(google_cloud_run_v2_service.this.template[0].containers[1].ports) == 0
    error_message = "The collector is missing, starts after the function, or takes its requests."
  }

  assert {
    condition     = yamldecode(one(google_cloud_run_v2_service.this.template[0].containers[1].env).value).service.pipelines.metrics.exporters == ["googlemanagedprometheus"]
    error_message = "The collector's settings are not YAML, or metrics go elsewhere than alerts look for them."
  }
}

run "internal_function_that_verifies_alone" {
  command = plan

  module {
    source = "./modules/function"
  }

  variables {
    name                = "fencepost-advance"
    target              = "advance"
    public              = false
    unchecked           = true
    image               = "image@sha256:0"
    account             = "fencepost-advance@project-1.iam.gserviceaccount.com"
    network             = "network"
    subnet              = "subnet"
    timeout             = 60
    concurrency         = 40
    min_instances       = 0
    max_instances       = 7
    environment         = {}
    secrets             = {}
    signer_files        = {}
    audience            = "https://internal.invalid"
    invokers            = { tasks = "serviceAccount:fencepost-tasks@project-1.iam.gserviceaccount.com" }
    collector_image     = null
    attested            = false
    deletion_protection = true
  }

  assert {
    condition     = google_cloud_run_v2_service.this.invoker_iam_disabled && google_cloud_run_v2_service.this.ingress == "INGRESS_TRAFFIC_INTERNAL_ONLY"
    error_message = "Cloud Run removes the token's signature, or lets in requests from outside."
  }
}

run "signer" {
  command = plan

  module {
    source = "./modules/signer"
  }

  variables {
    ring     = "fencepost-signers"
    location = "europe"
    keys     = ["treasury", "payouts"]
    signers  = { advance = "serviceAccount:fencepost-advance@project-1.iam.gserviceaccount.com" }
    readers  = { admin = "serviceAccount:fencepost-admin@project-1.iam.gserviceaccount.com" }
  }

  assert {
    condition     = alltrue([for k in google_kms_crypto_key.signer : k.version_template[0].algorithm == "EC_SIGN_SECP256K1_SHA256" && k.version_template[0].protection_level == "HSM" && k.purpose == "ASYMMETRIC_SIGN"])
    error_message = "A key is not a secp256k1 key of the HSM."
  }

  assert {
    condition     = google_kms_key_ring.this[0].location == "europe" && google_kms_key_ring.this[0].name == "fencepost-signers"
    error_message = "The keys are in another location or ring than was said."
  }

  assert {
    condition     = toset([for g in google_kms_crypto_key_iam_member.signer : "${g.role} ${g.member}"]) == toset(["roles/cloudkms.signer serviceAccount:fencepost-advance@project-1.iam.gserviceaccount.com", "roles/cloudkms.publicKeyViewer serviceAccount:fencepost-admin@project-1.iam.gserviceaccount.com"]) && length(google_kms_crypto_key_iam_member.signer) == 4
    error_message = "Somebody else may sign, or one who signs may do more."
  }
}

run "schedule" {
  command = plan

  module {
    source = "./modules/schedule"
  }

  variables {
    name     = "fencepost-conservation-full"
    schedule = "17 3,15 * * *"
    deadline = "1800s"
    uri      = "https://conservation-full.example.run.app/internal/conservation"
    body     = { full = true }
    account  = "fencepost-scheduler@project-1.iam.gserviceaccount.com"
    audience = "https://internal.invalid"
  }

  assert {
    condition     = google_cloud_scheduler_job.this.http_target[0].oidc_token[0].service_account_email == "fencepost-scheduler@project-1.iam.gserviceaccount.com" && google_cloud_scheduler_job.this.http_target[0].oidc_token[0].audience == "https://internal.invalid"
    error_message = "The job calls without a token."
  }

  assert {
    condition     = base64decode(google_cloud_scheduler_job.this.http_target[0].body) == "{\"full\":true}" && google_cloud_scheduler_job.this.http_target[0].http_method == "POST"
    error_message = "The job does not ask for what it is for."
  }
}

run "balancer" {
  command = plan

  module {
    source = "./modules/balancer"
  }

  override_resource {
    target          = google_compute_security_policy.public
    override_during = plan
    values          = { id = "projects/project-1/global/securityPolicies/fencepost-public" }
  }

  override_resource {
    target          = google_compute_security_policy.admin
    override_during = plan
    values          = { id = "projects/project-1/global/securityPolicies/fencepost-admin" }
  }

  variables {
    services = {
      create = { service = "fencepost-create", paths = ["POST /api/v1/tx", "/api/v1/tx:batch"] }
      query  = { service = "fencepost-query", paths = ["/api/v1/tx/", "/api/v1/tx"] }
      cancel = { service = "fencepost-cancel", paths = ["/api/v1/tx/{txId}/cancel"] }
      admin  = { service = "fencepost-admin", paths = ["/admin/v1/"] }
    }
    behind_default      = "query"
    admin               = "admin"
    admin_ranges        = ["192.0.2.0/24"]
    requests_per_minute = 600
    preview             = true

    caller_ranges              = ["198.51.100.7/32"]
    caller_requests_per_minute = 6000
  }

  assert {
    condition = [for r in google_compute_url_map.this.path_matcher[0].route_rules : join(" ", compact([
      try(r.match_rules[0].header_matches[0].exact_match, null), r.match_rules[0].full_path_match, r.match_rules[0].path_template_match, r.match_rules[0].prefix_match,
    ]))] == ["POST /api/v1/tx", "/api/v1/tx:batch", "/api/v1/tx", "/api/v1/tx/*/cancel", "/api/v1/tx/", "/admin/v1/"]
    error_message = "Paths are missing, or tried in an order that lets a wider one take what is another's."
  }

  assert {
    condition     = [for r in google_compute_url_map.this.path_matcher[0].route_rules : r.priority] == [1, 2, 3, 4, 5, 6]
    error_message = "Two rules have the same rank."
  }

  assert {
    condition     = [for action in [google_compute_url_map.this.default_route_action, google_compute_url_map.this.path_matcher[0].default_route_action] : "${action[0].fault_injection_policy[0].abort[0].http_status} ${action[0].fault_injection_policy[0].abort[0].percentage}"] == ["404 100", "404 100"]
    error_message = "A host or a path that is on no list, such as /readyz, reaches a function."
  }

  assert {
    condition     = alltrue([for b in google_compute_backend_service.service : b.load_balancing_scheme == "EXTERNAL_MANAGED"]) && length(google_compute_backend_service.service) == 4
    error_message = "A public function has no backend."
  }

  assert {
    condition = { for r in google_compute_security_policy.public.rule : r.priority => join(" ", [r.preview, join(",", r.match[0].config[0].src_ip_ranges), r.rate_limit_options[0].enforce_on_key, r.rate_limit_options[0].rate_limit_threshold[0].count]) if r.action == "throttle" } == {
      1900 = "true 198.51.100.7/32 IP 6000", 2000 = "true * IP 600"
    }
    error_message = "There is no limit of requests of each address, a higher one for the services' addresses, or it is enforced in spite of preview."
  }

  assert {
    condition     = [for r in google_compute_security_policy.public.rule : r.match[0].expr[0].expression if length(r.match[0].expr) > 0] == ["evaluatePreconfiguredWaf('sqli-v422-stable', {'sensitivity': 1, 'opt_out_rule_ids': [${join(", ", [for id in ["942100", "942140", "942151", "942160", "942190"] : "'owasp-crs-v042200-id${id}-sqli'"])}]})"]
    error_message = "The rule against injection is of a level that takes addresses and call data for one, or matches the names of contracts' functions."
  }

  assert {
    condition     = google_compute_backend_service.service["admin"].security_policy == google_compute_security_policy.admin.id && google_compute_backend_service.service["create"].security_policy == google_compute_security_policy.public.id
    error_message = "The admin functions are not behind the operators' addresses."
  }

  assert {
    condition     = { for r in google_compute_security_policy.admin.rule : format("%010d %s", r.priority, r.action) => r.preview } == { "0000001000 deny(403)" = true, "0000002000 throttle" = true, "0000003000 allow" = false, "2147483647 deny(404)" = false }
    error_message = "Others than operators get as far as the admin functions, or operators past the rules for everybody."
  }

  assert {
    condition     = alltrue([for r in google_compute_security_policy.admin.rule : toset(r.match[0].config[0].src_ip_ranges) == toset(["192.0.2.0/24"]) if contains(["throttle", "allow"], r.action)])
    error_message = "Operators' rules are for other addresses."
  }
}

run "admin_without_ranges" {
  command = plan

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
    condition     = [for r in google_compute_security_policy.public.rule : r.rate_limit_options[0].rate_limit_threshold[0].count if r.action == "throttle"] == [600]
    error_message = "Without ranges of services there is more than the limit for every address, or none."
  }

  assert {
    condition     = [for r in google_compute_security_policy.admin.rule : "${r.action} ${r.preview}" if r.action != "deny(403)"] == ["deny(404) false"]
    error_message = "Without ranges somebody reaches the admin functions."
  }
}

run "network" {
  command = plan

  module {
    source = "./modules/network"
  }

  override_resource {
    target          = google_compute_global_address.services
    override_during = plan
    values          = { address = "10.20.0.0" }
  }

  variables {
    subnet_range  = "10.8.0.0/22"
    signing_range = "10.8.4.0/24"
    nat_addresses = 2
    closed        = true
    egress_ports  = ["443"]
    egress = {
      functions = { hosts = ["node.example.com", "shop.example.com"], ranges = [] }
      signing   = { hosts = ["node.example.com"], ranges = ["192.0.2.7/32"] }
    }
  }

  assert {
    condition = [for r in google_compute_network_firewall_policy_rule.egress : "${r.action} ${r.match[0].src_ip_ranges[0]} ${join(",", concat(coalesce(r.match[0].dest_fqdns, []), coalesce(r.match[0].dest_ip_ranges, [])))} ${one(r.match[0].layer4_configs).ip_protocol}"] == [
      "allow 10.8.0.0/22 10.20.0.0/20 tcp",
      "allow 10.8.0.0/22 199.36.153.8/30 tcp",
      "allow 10.8.0.0/22 node.example.com,shop.example.com tcp",
      "deny 10.8.0.0/22 0.0.0.0/0 all",
      "allow 10.8.4.0/24 10.20.0.0/20 tcp",
      "allow 10.8.4.0/24 199.36.153.8/30 tcp",
      "allow 10.8.4.0/24 node.example.com tcp",
      "deny 10.8.4.0/24 0.0.0.0/0 all",
      "allow 10.8.4.0/24 192.0.2.7/32 tcp",
    ]
    error_message = "A group of functions reaches more, or less, than Google's APIs, the database and the hosts that it was given."
  }

  assert {
    condition     = alltrue([for key, r in google_compute_network_firewall_policy_rule.egress : r.direction == "EGRESS" && (r.action != "deny" || alltrue([for other in google_compute_network_firewall_policy_rule.egress : other.priority <= r.priority if other.match[0].src_ip_ranges == r.match[0].src_ip_ranges]))])
    error_message = "The rule that denies everything is tried before one that allows something."
  }

  assert {
    condition     = length(distinct([for r in google_compute_network_firewall_policy_rule.egress : r.priority])) == length(google_compute_network_firewall_policy_rule.egress)
    error_message = "Two rules have the same rank."
  }

  assert {
    condition     = google_compute_router_nat.this.nat_ip_allocate_option == "MANUAL_ONLY" && length(google_compute_address.nat) == 2 && alltrue([for n in google_compute_router_nat.this.subnetwork : n.source_ip_ranges_to_nat == toset(["ALL_IP_RANGES"])])
    error_message = "Requests come from addresses that are not ours, or a group of functions has no way out."
  }

  assert {
    condition     = google_service_networking_connection.services.deletion_policy == "ABANDON"
    error_message = "After the database was destroyed, the destroy of the network fails for as long as Google holds the peering."
  }

  assert {
    condition     = google_compute_subnetwork.signing.private_ip_google_access && google_compute_subnetwork.functions.private_ip_google_access && google_dns_record_set.google_apis["*.googleapis.com."].rrdatas == tolist(["private.googleapis.com."])
    error_message = "Google's APIs are not reached inside Google's network."
  }
}

run "network_open" {
  command = plan

  module {
    source = "./modules/network"
  }

  variables {
    subnet_range  = "10.8.0.0/22"
    signing_range = "10.8.4.0/24"
    nat_addresses = 1
    closed        = false
    egress_ports  = ["443"]
    egress        = { functions = { hosts = [], ranges = [] }, signing = { hosts = [], ranges = [] } }
  }

  assert {
    condition     = length(google_compute_network_firewall_policy_rule.egress) == 0
    error_message = "An open network refuses something."
  }
}

run "alerts" {
  command = plan

  override_resource {
    target          = google_monitoring_uptime_check_config.api
    override_during = plan
    values          = { uptime_check_id = "from-outside" }
  }

  module {
    source = "./modules/alerts"
  }

  variables {
    host                  = "api.example.com"
    queue_prefix          = "again"
    runbooks_url          = "https://example.com/runbooks"
    notification_channels = ["projects/project-1/notificationChannels/1"]
    metrics               = true
    transfers             = true
    events                = true
    jobs                  = { sweep = { runs = 3, window = "300s" }, conservation-full = { runs = 1, window = "82800s" } }
    in_flight_seconds     = 1200
    refused_requests      = 100
    max_connections       = 400
    database_id           = "project-1:fencepost"
  }

  assert {
    condition     = alltrue([for name, p in google_monitoring_alert_policy.this : p.documentation[0].links[0].url == "https://example.com/runbooks/${trimsuffix(name, "-logged")}.md" && strcontains(p.documentation[0].content, "https://example.com/runbooks/${trimsuffix(name, "-logged")}.md")])
    error_message = "An alert does not link its page."
  }

  assert {
    condition     = alltrue([for p in google_monitoring_alert_policy.this : length(p.conditions) > 0 && length(p.notification_channels) == 1])
    error_message = "An alert can never fire, or nobody is told."
  }

  assert {
    condition = alltrue([for p in google_monitoring_alert_policy.this : alltrue([for c in p.conditions :
      length(c.condition_threshold) + length(c.condition_absent) + length(c.condition_prometheus_query_language) + length(c.condition_matched_log) == 1
    ])])
    error_message = "A condition is none, or several."
  }

  assert {
    condition = alltrue([for name in ["sweep-missed", "conservation-full-missed"] : (
      length(google_monitoring_alert_policy.this[name].conditions) == 2 &&
      length(google_monitoring_alert_policy.this[name].conditions[0].condition_threshold) == 1 &&
      google_monitoring_alert_policy.this[name].conditions[0].condition_threshold[0].comparison == "COMPARISON_LT" &&
      length(google_monitoring_alert_policy.this[name].conditions[1].condition_absent) == 1
    )])
    error_message = "A job that fails, or one that is not run at all, goes unseen."
  }

  assert {
    # Cloud Monitoring takes no condition of absence longer than 23 hours and a half.
    condition     = alltrue(flatten([for p in google_monitoring_alert_policy.this : [for c in p.conditions : [for a in c.condition_absent : tonumber(trimsuffix(a.duration, "s")) <= 84600]]]))
    error_message = "A condition of absence is too long."
  }

  assert {
    condition     = alltrue([for p in google_monitoring_alert_policy.this : length(p.conditions) == 1 && length(p.alert_strategy[0].notification_rate_limit) == 1 if anytrue([for c in p.conditions : length(c.condition_matched_log) > 0])])
    error_message = "A policy upon the log has one condition, and says how often it tells."
  }

  assert {
    condition     = alltrue([for id in ["MON-001", "MON-002", "MON-003", "MON-004"] : anytrue([for p in google_monitoring_alert_policy.this : strcontains(try(p.conditions[0].condition_matched_log[0].filter, ""), "jsonPayload.alert=\"${id}\"")])])
    error_message = "An alert of transfers tells nobody."
  }

  assert {
    condition     = google_monitoring_alert_policy.this["queue-full"].conditions[0].condition_prometheus_query_language[0].query == "max(fencepost_queue_fullness_ratio) >= 0.8"
    error_message = "A queue is told of at another mark than 80% of its bound."
  }

  assert {
    condition     = { for name in ["protect", "stuck"] : name => google_monitoring_alert_policy.this[name].conditions[0].condition_prometheus_query_language[0].query } == { protect = "max(fencepost_protect_submitters) > 0", stuck = "max(fencepost_stuck_transactions) > 0" }
    error_message = "What waits for a person is not told for as long as it waits."
  }

  assert {
    condition     = alltrue([for name in ["protect-logged", "stuck-logged", "balance-logged"] : length(google_monitoring_alert_policy.this[name].conditions[0].condition_matched_log) == 1])
    error_message = "What waits for a person is told by metrics alone, which go a longer way than the log."
  }

  assert {
    condition = google_monitoring_uptime_check_config.api.monitored_resource[0].labels == tomap({ project_id = "project-1", host = "api.example.com" }) && alltrue([for c in google_monitoring_uptime_check_config.api.http_check :
      c.path == "/api/v1/tx/none" && c.port == 443 && c.use_ssl && c.validate_ssl && one(c.accepted_response_status_codes).status_value == 401
    ])
    error_message = "The check from outside does not ask a function of the public host through the load balancer."
  }

  assert {
    condition     = strcontains(google_monitoring_alert_policy.this["unreachable"].conditions[0].condition_threshold[0].filter, "metric.labels.check_id=\"from-outside\"") && google_monitoring_alert_policy.this["unreachable"].conditions[0].condition_threshold[0].comparison == "COMPARISON_GT"
    error_message = "Nobody is told that the check from outside fails."
  }

  assert {
    condition     = google_monitoring_alert_policy.this["events-late"].conditions[0].condition_prometheus_query_language[0].query == "max by (endpoint) (fencepost_event_age_seconds) > 600"
    error_message = "Nobody is told of an endpoint that takes nothing."
  }

  assert {
    condition     = alltrue([for c in slice(google_monitoring_alert_policy.this["receipt-backlog"].conditions, 1, 3) : strcontains(c.condition_threshold[0].filter, "starts_with(\"again-receipt-\")")]) && strcontains(google_monitoring_dashboard.this.dashboard_json, "again-.*")
    error_message = "The backlog is looked for in queues that the functions do not use."
  }

  assert {
    condition     = length(google_monitoring_alert_policy.this["receipt-backlog"].conditions[0].condition_prometheus_query_language) == 1
    error_message = "Nobody is told that receipts stay out."
  }

  assert {
    condition = alltrue([for metric in [
      "fencepost_lease_acquire_total", "fencepost_lease_fenced_total", "fencepost_tx_create_total", "fencepost_tx_sign_total", "fencepost_tx_sign_seconds_total", "fencepost_tx_submit_total", "fencepost_receipt_check_total", "fencepost_confirmations_new_fork_total",
      "fencepost_tx_resubmit_total", "fencepost_finality_total", "fencepost_stuck_decision_total", "fencepost_queue_depth", "fencepost_held_intents", "fencepost_held_age_seconds", "fencepost_in_flight_age_seconds", "fencepost_protect_submitters",
      "fencepost_transfer_total", "fencepost_transfer_stuck_seconds", "fencepost_refund_failures_total", "fencepost_conservation_check_total",
      "fencepost_event_delivery_total", "fencepost_event_backlog", "fencepost_event_age_seconds",
      "fencepost_gas_bump_total", "fencepost_gas_bump_extra_gwei_total", "fencepost_gas_bump_held", "fencepost_mempool_diagnosis_total",
      "fencepost_queue_blocked_heads", "fencepost_balance_waiting_submitters", "fencepost_fee_waiting_submitters", "fencepost_submitter_balance_gwei",
    ] : strcontains(google_monitoring_dashboard.this.dashboard_json, metric)])
    error_message = "A metric is not on the dashboard."
  }
}

run "alerts_without_metrics" {
  command = plan

  module {
    source = "./modules/alerts"
  }

  variables {
    host                  = "api.example.com"
    queue_prefix          = "again"
    runbooks_url          = "https://example.com/runbooks"
    notification_channels = []
    metrics               = false
    transfers             = false
    events                = false
    jobs                  = {}
    in_flight_seconds     = 1200
    refused_requests      = 100
    max_connections       = 400
    database_id           = "project-1:fencepost"
  }

  assert {
    condition     = alltrue(flatten([for p in google_monitoring_alert_policy.this : [for c in p.conditions : length(c.condition_prometheus_query_language) == 0]]))
    error_message = "An alert asks for a metric that nothing exports."
  }

  assert {
    condition     = !strcontains(google_monitoring_dashboard.this.dashboard_json, "event_")
    error_message = "There are charts of events where none are told."
  }

  assert {
    condition     = alltrue([for name in ["protect-logged", "stuck-logged", "balance-logged"] : length(google_monitoring_alert_policy.this[name].conditions[0].condition_matched_log) == 1])
    error_message = "Without metrics nobody is told what waits for a person."
  }
}
