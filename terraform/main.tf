# The map of functions is functions.json, the settings of queues queues.json: plain data, which a test of the
# emulator reads too, so that a test on one machine tests the deployed data.

locals {
  catalogue = jsondecode(file("${path.module}/functions.json"))
  queue     = jsondecode(file("${path.module}/queues.json"))

  # Those that this deployment has: of transfers, and of events, only where there are some.
  chosen = { for name, f in local.catalogue : name => f if(var.transfers != null || !try(f.transfers, false)) && (local.events_kept || !try(f.events, false)) }

  functions = {
    for name, f in local.chosen : name => {
      target    = try(f.target, name)
      paths     = try(f.paths, [])
      public    = length(try(f.paths, [])) > 0
      queue     = try(f.queue, null)
      enqueues  = [for kind in try(f.enqueues, []) : kind if contains(local.served, kind)]
      scheduled = try(f.scheduled, false)
      signs     = try(f.signs, false)
      registers = try(f.registers, false)
      nodes     = try(f.nodes, false)
      accepts   = try(f.accepts, false)
      ledgers   = try(f.ledgers, false) && var.transfers != null
      publishes = try(f.events, false)
      marks     = try(f.marks, false)
      timeout   = try(f.timeout, 60)
      # In milliseconds: a lease's length; for checks of conservation, which read all accounts in one snapshot, a request's.
      transaction_timeout = try(f.long_transactions, false) ? 1000 * try(f.timeout, 60) : 10000
      max_instances       = local.most_instances[name]
      min_instances       = try(var.min_instances[name], 0)
    }
  }

  # If events are kept, a function delivers them, with a queue.
  events_mode = var.events == null ? "poll" : var.events.mode
  events_kept = contains(["mq_outbox", "webhook"], local.events_mode)

  # The function that serves each queue, also of those that this deployment has not: for days Cloud Tasks refuses a new
  # queue with the name of one that was deleted, so that none goes with a feature or with the image.
  queues = { for name, f in local.catalogue : f.queue => name if can(f.queue) }
  served = toset([for kind, name in local.queues : kind if contains(keys(local.chosen), name)])

  queue_prefix = coalesce(var.queue_prefix, var.name)

  # Cloud Run's address of a service follows from its name, so that its queue can be made first.
  hosts = { for kind, name in local.queues : kind => "${var.name}-${name}-${data.google_project.this.number}.${var.region}.run.app" }

  most_instances = { for name, f in local.catalogue : name => try(var.max_instances[name], f.max_instances, var.default_max_instances) }

  # Instances exist only once there is an image of them.
  deployed = { for name, f in local.functions : name => f if var.image != null }

  connections = sum([for f in values(local.functions) : f.max_instances * var.database.pool])
}

module "network" {
  source = "./modules/network"

  name          = var.name
  region        = var.region
  subnet_range  = var.subnet_range
  signing_range = var.signing_subnet_range
  nat_addresses = var.egress.nat_addresses
  closed        = !var.egress.open
  egress        = local.egress
  egress_ports  = local.egress_ports

  depends_on = [google_project_service.api]
}

module "database" {
  source = "./modules/database"

  instance_name       = coalesce(var.database_instance_name, var.name)
  region              = var.region
  network             = module.network.network
  size                = var.database
  connections         = local.connections
  deletion_protection = var.deletion_protection

  accounts         = { for name in keys(local.functions) : name => local.accounts[name] }
  migrator_account = local.accounts["migrate"]
  readers          = var.readers
  encryption_key   = var.encryption_key

  # Cloud SQL finds no private network before Google's services are peered with it.
  depends_on = [module.network, google_kms_crypto_key_iam_member.encrypts, google_kms_crypto_key_iam_member.encrypts_replica]
}

module "signer" {
  source = "./modules/signer"

  ring     = coalesce(var.signing_key_ring, "${var.name}-signers")
  location = coalesce(var.signer_location, var.region)
  keys     = var.signing_keys
  signers  = { for name, f in local.functions : name => local.members[name] if f.signs && contains(var.signers, "kms") }
  readers  = { for name, f in local.functions : name => local.members[name] if f.registers && contains(var.signers, "kms") }

  depends_on = [google_project_service.api]
}

module "function" {
  source   = "./modules/function"
  for_each = local.deployed

  name                = "${var.name}-${each.key}"
  region              = var.region
  target              = each.value.target
  public              = each.value.public
  unchecked           = var.internal_tokens_verified_once
  called_inside       = each.key == "admin" && length(local.consoles) > 0
  image               = var.image
  account             = local.accounts[each.key]
  network             = module.network.network
  subnet              = module.network.subnets[local.subnet_of[each.key]]
  timeout             = each.value.timeout
  concurrency         = var.concurrency
  min_instances       = each.value.min_instances
  max_instances       = each.value.max_instances
  environment         = merge(local.environment, local.own_environment[each.key], var.settings)
  secrets             = local.secrets_of[each.key]
  signer_files        = local.signer_files_of[each.key]
  audience            = local.internal_audience
  invokers            = local.invokers[each.key]
  collector_image     = var.collector_image
  attested            = var.binary_authorization != null
  deletion_protection = var.deletion_protection

  depends_on = [google_secret_manager_secret_iam_member.reader, module.database, google_binary_authorization_policy.this]
}

# A queue depends on no function: neither a missing image nor a feature that is taken back deletes one.
module "queue" {
  source   = "./modules/queue"
  for_each = local.queues

  prefix                    = "${local.queue_prefix}-${each.key}"
  region                    = var.region
  shards                    = var.queue_shards
  host                      = local.hosts[each.key]
  settings                  = local.queue
  max_concurrent_dispatches = local.queue.max_concurrent_dispatches[each.key]
  capacity                  = local.most_instances[each.value] * var.concurrency
  enqueuers                 = { for name, f in local.functions : name => local.members[name] if contains(f.enqueues, each.key) }

  depends_on = [google_project_service.api]
}

module "schedule" {
  source   = "./modules/schedule"
  for_each = { for name, job in local.jobs : name => job if contains(keys(local.deployed), name) }

  name     = "${var.name}-${each.key}"
  region   = var.region
  schedule = each.value.schedule
  deadline = each.value.deadline
  uri      = "${module.function[each.key].uri}/internal/${local.functions[each.key].target}"
  body     = each.value.body
  account  = local.accounts["scheduler"]
  audience = local.internal_audience
}

module "migration" {
  source = "./modules/migration"
  count  = local.migrate_image == null ? 0 : 1

  name           = "${var.name}-migrate"
  region         = var.region
  image          = local.migrate_image
  account        = local.accounts["migrate"]
  network        = module.network.network
  subnet         = module.network.subnets["functions"]
  instance       = module.database.connection_name
  database_url   = module.database.migrator_url
  database_roles = module.database.users
  readers        = module.database.readers
  environment    = local.mark_environment
  attested       = var.binary_authorization != null
}

module "balancer" {
  source = "./modules/balancer"
  count  = var.image == null ? 0 : 1

  name                = var.name
  region              = var.region
  domain              = var.domain
  services            = { for name, f in local.deployed : name => { service = module.function[name].name, paths = f.paths } if f.public }
  behind_default      = "query"
  others              = { for name, b in google_compute_backend_service.console : name => { backend = b.id, paths = ["/console/"] } }
  admin               = "admin"
  admin_ranges        = var.admin_ranges
  requests_per_minute = var.requests_per_minute
  preview             = var.armor_preview

  caller_ranges              = var.caller_ranges
  caller_requests_per_minute = var.caller_requests_per_minute
}

module "alerts" {
  source = "./modules/alerts"
  count  = var.image == null ? 0 : 1

  name                  = var.name
  project               = var.project
  host                  = var.domain
  queue_prefix          = local.queue_prefix
  runbooks_url          = var.runbooks_url
  notification_channels = var.notification_channels
  metrics               = var.collector_image != null
  transfers             = var.transfers != null
  events                = local.events_kept
  jobs                  = { for name, job in local.jobs : name => { runs = job.runs, window = job.window } if contains(keys(local.deployed), name) }
  in_flight_seconds     = var.in_flight_seconds
  refused_requests      = var.refused_requests
  max_connections       = var.database.max_connections
  database_id           = "${var.project}:${module.database.instance}"
}

locals {
  migrate_image = var.migrate_image != null ? var.migrate_image : var.image

  # The scheduled jobs. Two missed runs in a row raise no alert: window holds several, of which runs
  # must have succeeded. A condition of absence can be 23.5 hours long at most, hence twice a day, not once.
  jobs = {
    sweep             = { schedule = "* * * * *", deadline = "60s", body = {}, runs = 3, window = "300s" }
    conservation      = { schedule = "* * * * *", deadline = "60s", body = {}, runs = 3, window = "300s" }
    conservation-full = { schedule = "17 3,15 * * *", deadline = "1800s", body = { full = true }, runs = 1, window = "82800s" }
  }
}
