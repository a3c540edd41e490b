# What every deployment must say.

variable "project" {
  description = "The Google Cloud project of the deployment."
  type        = string
}

variable "environment" {
  description = "The environment: dev, staging or prod."
  type        = string

  validation {
    condition     = contains(["dev", "staging", "prod"], var.environment)
    error_message = "environment must be dev, staging or prod."
  }
}

variable "domain" {
  description = "The host name of the public API, such as api.example.com. You create its A record by hand, from the output address."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9-]+(\\.[a-z0-9-]+)+$", var.domain))
    error_message = "domain must be a host name in lower case without scheme or path."
  }
}

variable "chain_id" {
  description = "The EIP-155 id of the default chain."
  type        = number

  validation {
    condition     = var.chain_id > 0 && floor(var.chain_id) == var.chain_id
    error_message = "chain_id must be a whole number above 0."
  }
}

variable "operators" {
  description = "The operators, who may call the admin functions. Each is email: and a verified e-mail address, or sub: and the subject of a token, such as a service account's unique id. An address without a kind is read as email:."
  type        = set(string)

  validation {
    condition     = alltrue([for o in var.operators : can(regex("^(email:[^\\s@,]+@[^\\s@,]+|sub:[^\\s,]+|[^\\s@,:]+@[^\\s@,]+)$", o))])
    error_message = "each of operators must be email:<e-mail address> or sub:<subject>."
  }
}

variable "deposit_service" {
  description = "The identity of the service that books users' deposits, in the form of operators. It reaches the admin paths from admin_ranges, and each asset's dailyServiceDeposits limits it. Empty: only operators book."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for o in var.deposit_service : can(regex("^(email:[^\\s@,]+@[^\\s@,]+|sub:[^\\s,]+|[^\\s@,:]+@[^\\s@,]+)$", o))]) && length(setintersection(var.deposit_service, var.operators)) == 0
    error_message = "each of deposit_service must be email:<e-mail address> or sub:<subject>, and no operator."
  }
}

variable "approvals" {
  description = "required: the kinds of acts that one operator proposes and another must approve (docs/approvals.md): policy, callers, signer, register, release, accept, adjustments, webhooks. Empty: one operator decides everything alone."
  type = object({
    required = optional(set(string), [])
  })
  default  = {}
  nullable = false

  validation {
    condition     = length(setsubtract(var.approvals.required, ["policy", "callers", "signer", "register", "release", "accept", "adjustments", "webhooks"])) == 0
    error_message = "each of approvals.required must be policy, callers, signer, register, release, accept, adjustments or webhooks."
  }

  validation {
    condition     = length(var.approvals.required) == 0 || length(var.operators) >= 2
    error_message = "approvals.required needs at least two operators: a proposer cannot approve. Add another person to operators."
  }
}

variable "readers" {
  description = "E-mail addresses of the people who may read the database, to investigate alerts. They can read intents and balances; the database holds no keys."
  type        = set(string)
  default     = []
}

variable "image" {
  description = "The functions' image by digest, HOST/PROJECT/REPOSITORY/NAME@sha256:…. Null deploys everything but the functions and their ways in, such as jobs and the load balancer."
  type        = string
  default     = null

  validation {
    condition     = var.image == null || can(regex("@sha256:[0-9a-f]{64}$", var.image))
    error_message = "image must name a digest (…@sha256:…): a tag can point to another image when the next instance starts."
  }
}

variable "migrate_image" {
  description = "The image of the migration job, if it must be newer than the functions' image; null: the functions' image."
  type        = string
  default     = null

  validation {
    condition     = var.migrate_image == null || can(regex("@sha256:[0-9a-f]{64}$", var.migrate_image))
    error_message = "migrate_image must name a digest, HOST/PROJECT/REPOSITORY/NAME@sha256:…."
  }
}

# Variables with a default.

variable "region" {
  description = "The region of the deployment's resources."
  type        = string
  default     = "europe-west1"
}

variable "name" {
  description = "The beginning of each resource's name, and of the queues' names."
  type        = string
  default     = "fencepost"

  validation {
    # fencepost-conservation-full is 10 + 17 long, and an account's name has 30 characters.
    condition     = can(regex("^[a-z][a-z0-9-]{0,10}[a-z0-9]$", var.name))
    error_message = "name must be 2 to 12 lower-case letters, digits and hyphens, and begin with a letter."
  }

  validation {
    # Postgres cuts a longer role's name, and the function could not log in.
    condition     = length("${var.name}-conservation-full@${var.project}.iam") <= 63
    error_message = "name and project are too long together: the role of a function in Postgres, NAME-conservation-full@PROJECT.iam, has more than 63 characters. Shorten name."
  }
}

variable "subnet_range" {
  description = "The subnet from which instances reach the database. Each instance holds an address, also for a while after its end: plan about four for each of max_instances."
  type        = string
  default     = "10.8.0.0/22"
}

variable "queue_prefix" {
  description = "The beginning of the queues' names, if it is not name, as after their loss: for up to seven days Cloud Tasks refuses the names of deleted queues. Changing it deletes the queues that there are."
  type        = string
  default     = null

  validation {
    condition     = var.queue_prefix == null || can(regex("^[a-z][a-z0-9-]{0,38}[a-z0-9]$", var.queue_prefix))
    error_message = "queue_prefix must be 2 to 40 lower-case letters, digits and hyphens, and begin with a letter."
  }
}

variable "queue_shards" {
  description = "The number of queues of each kind of work, among which submitters are spread. One queue dispatches at most 500 tasks a second. After a lower number the names of the removed queues cannot be used for days."
  type        = number
  default     = 1

  validation {
    condition     = var.queue_shards >= 1 && var.queue_shards <= 100 && floor(var.queue_shards) == var.queue_shards
    error_message = "queue_shards must be a whole number from 1 to 100."
  }
}

variable "default_max_instances" {
  description = "The maximum of instances of a function that neither functions.json nor max_instances limits."
  type        = number
  default     = 10
}

variable "max_instances" {
  description = "The maximum of instances by function. It replaces the one in functions.json."
  type        = map(number)
  default     = {}

  validation {
    condition     = alltrue([for name in keys(var.max_instances) : contains(keys(jsondecode(file("${path.module}/functions.json"))), name)])
    error_message = "max_instances names a function that functions.json does not list: use a name from that file."
  }
}

variable "min_instances" {
  description = "Instances that are kept warm, by function. Each is billed while idle. By default those for which a caller waits: a cold one can need a minute for its first connection to the database."
  type        = map(number)
  default     = { create = 1, query = 1, cancel = 1, transfer = 1 }

  validation {
    condition     = alltrue([for name in keys(var.min_instances) : contains(keys(jsondecode(file("${path.module}/functions.json"))), name)])
    error_message = "min_instances names a function that functions.json does not list: use a name from that file."
  }
}

variable "concurrency" {
  description = "The number of requests that one instance serves at once. Requests of one instance share round trips to the database and the nodes, so a low number costs more of each."
  type        = number
  default     = 80
}

variable "database" {
  description = "The size of the Cloud SQL instance. connections_reserved is kept free for people, backups and the migration. pgaudit lists the classes of statements that pgAudit logs. Use ddl,role: a class such as write logs each transaction's statements with their values. replica_region is another region with a replica, for the loss of this one; replica_key is its Cloud KMS key where encryption_key is set. Null: no replica. region is the instance's, if it is not the deployment's, as after a switch to the replica."
  type = object({
    version              = optional(string, "POSTGRES_17")
    tier                 = optional(string, "db-custom-2-7680")
    regional             = optional(bool, true)
    disk_gb              = optional(number, 20)
    max_connections      = optional(number, 400)
    connections_reserved = optional(number, 20)
    pool                 = optional(number, 4)
    log_retention_days   = optional(number, 7)
    backups              = optional(number, 14)
    pgaudit              = optional(string, "ddl,role")
    region               = optional(string)
    replica_region       = optional(string)
    replica_key          = optional(string)
  })
  default = {}

  validation {
    # Before 17 nothing in the server ends a transaction whose client was frozen in the middle of a batch.
    condition     = can(regex("^POSTGRES_(1[7-9]|[2-9][0-9])$", var.database.version))
    error_message = "database.version must be POSTGRES_17 or later: earlier versions lack transaction_timeout."
  }
}

variable "database_instance_name" {
  description = "The Cloud SQL instance's name, if it differs from name, as after a restore into a new instance."
  type        = string
  default     = null

  validation {
    condition     = var.database_instance_name == null || can(regex("^[a-z][a-z0-9-]{0,78}[a-z0-9]$", var.database_instance_name))
    error_message = "database_instance_name must be lower-case letters, digits and hyphens, and begin with a letter."
  }
}

variable "mark_location" {
  description = "The location of the mark outside the database, which shows a restored database. Null: the region. A multi-region such as EU outlives the region."
  type        = string
  default     = null
}

variable "mark_bucket" {
  description = "The bucket of the mark, if it is not project-name-mark, as after the loss of a region: then the lost deployment's bucket, which you import."
  type        = string
  default     = null
}

variable "secret_regions" {
  description = "Further regions that keep the secrets, such as the replica's. Choose before the first apply: a secret's regions do not change. Without them the keys of the intents' MACs are lost with the region."
  type        = set(string)
  default     = []

  validation {
    condition     = length(var.secret_regions) == 0 || var.encryption_key == null
    error_message = "secret_regions is refused with encryption_key, which is in the region and cannot encrypt elsewhere."
  }
}

variable "deletion_protection" {
  description = "Whether Terraform refuses to destroy the database, the functions and the keys. It must be true in prod."
  type        = bool
  default     = true

  validation {
    condition     = var.deletion_protection || var.environment != "prod"
    error_message = "deletion_protection cannot be switched off in prod."
  }
}

variable "secret_versions" {
  description = "The version in use of each secret of the output secrets, without the beginning of its name, such as { rpc-urls = \"1\" }. Name a version after giving its value: services are made only of versions that exist. Numbers, so that an instance started tomorrow reads what one started today did."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for v in values(var.secret_versions) : can(regex("^[1-9][0-9]*$", v))])
    error_message = "secret_versions must be numbers; latest is not a version."
  }
}

variable "more_chains" {
  description = "Whether the deployment serves further chains. The secret chains lists them, in the JSON form of docs/chains.md."
  type        = bool
  default     = false
}

variable "handlers" {
  description = "The https URLs of the business services that make transactions, by name; advance calls them. The secret handler-secrets (name=whsec_…, separated by commas) signs these calls; only advance reads it."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name, url in var.handlers : can(regex("^[a-z][a-z0-9_.-]{0,63}$", name)) && can(regex("^https://[^,?#@ ]+$", url))])
    error_message = "handlers must be names of lower-case letters, digits, dots, dashes and underscores, and https URLs without query."
  }
}

variable "signers" {
  description = "The kinds of signers of this deployment: kms (signing_keys), remote (the services in the secret signer-remotes) and local (the keys in the secret signer-keys). Each submitter's registration names one. Use kms in prod: the keys stay in the HSM. Use local for trials only."
  type        = set(string)
  default     = ["kms"]

  validation {
    condition     = length(var.signers) > 0 && length(setsubtract(var.signers, ["local", "kms", "remote"])) == 0
    error_message = "signers must name one or more of kms, remote and local."
  }

  validation {
    condition     = !contains(var.signers, "local") || var.environment != "prod"
    error_message = "signers names local in prod: an attacker in the process could read the keys. Name kms or remote."
  }

  validation {
    condition     = !contains(var.signers, "kms") || var.image == null || length(var.signing_keys) > 0
    error_message = "signers names kms, and signing_keys is empty: name at least one key."
  }
}

variable "signer" {
  description = "The former name of signers. It must stay null."
  type        = string
  default     = null

  validation {
    condition     = var.signer == null
    error_message = "signer is now signers, a list of kinds: write signers = [\"kms\"], [\"kms\", \"remote\"], or outside prod [\"local\"]."
  }
}

variable "signing_keys" {
  description = "Names of the secp256k1 keys in the HSM, one for each signing account. Terraform never destroys a key."
  type        = set(string)
  default     = []
}

variable "signer_location" {
  description = "The location of the signing keys. Null: the region. A multi-region such as europe outlives the region. Choose before the first key: a key does not move, and a new key is another account."
  type        = string
  default     = null
}

variable "signing_key_ring" {
  description = "The key ring of the signing keys, if it is not name-signers, as after the loss of a region: then the lost deployment's, whose keys you import."
  type        = string
  default     = null
}

variable "transfers" {
  description = "The trading core, and the issuer of users' tokens. Null: the functions for transfers are not deployed."
  type = object({
    trading_url    = string
    users_issuer   = string
    users_jwks_url = string
    users_audience = string
  })
  default = null
}

variable "oidc" {
  description = "The issuer of the tokens of callers, operators, tasks and the scheduler. open: whether people outside your organization get tokens of this issuer too, as of Google's. Then a submitter's callers must be named one by one, never as *. Prod requires a value."
  type = object({
    issuer   = optional(string, "https://accounts.google.com")
    jwks_url = optional(string, "https://www.googleapis.com/oauth2/v3/certs")
    open     = optional(bool)
  })
  default = {}

  validation {
    condition     = var.environment != "prod" || var.oidc.open != null
    error_message = "oidc.open must be set in prod: true if any person can get a token of this issuer, false if only your organization's accounts can."
  }

  validation {
    condition     = var.oidc.open != false || var.oidc.issuer != "https://accounts.google.com"
    error_message = "oidc.open must be true for https://accounts.google.com: each Google account gets its tokens for any audience."
  }
}

variable "settings" {
  description = "Further settings of all functions (docs/settings.md). They replace values from other variables. Do not put secrets here."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name in keys(var.settings) : startswith(name, "FENCEPOST_")])
    error_message = "settings must be variables that begin with FENCEPOST_."
  }

  validation {
    condition     = length(setintersection(keys(var.settings), ["FENCEPOST_RPC_URLS", "FENCEPOST_CHAINS", "FENCEPOST_TRADING_SECRET", "FENCEPOST_DATABASE_URL", "FENCEPOST_MARK_BUCKET"])) == 0
    error_message = "settings must not contain FENCEPOST_RPC_URLS, FENCEPOST_CHAINS, FENCEPOST_TRADING_SECRET (give them as secrets), FENCEPOST_DATABASE_URL (it is set for each function) or FENCEPOST_MARK_BUCKET (give mark_bucket)."
  }
}

variable "admin_ranges" {
  description = "Address ranges that may reach the admin paths, at most ten, such as your office's and your VPN's. Empty: none, and the admin paths answer 404. [\"*\"] allows every address, so that only the operators' tokens protect the paths; prod refuses it."
  type        = list(string)
  default     = []

  validation {
    condition     = length(var.admin_ranges) <= 10
    error_message = "admin_ranges must have at most ten ranges: a rule of Cloud Armor takes no more."
  }

  validation {
    condition     = alltrue([for r in var.admin_ranges : r == "*" || can(cidrhost(r, 0))])
    error_message = "admin_ranges must be ranges such as 192.0.2.0/24 or 2001:db8::/48, or * for every address."
  }

  validation {
    condition     = var.environment != "prod" || alltrue([for r in var.admin_ranges : r != "*" && try(tonumber(split("/", r)[1]), 0) >= 8])
    error_message = "admin_ranges in prod must be ranges of /8 or narrower: the addresses of operators."
  }
}

variable "requests_per_minute" {
  description = "The number of requests of one address in a minute above which Cloud Armor answers 429."
  type        = number
  default     = 6000
}

variable "caller_ranges" {
  description = "Address ranges of the services that create transactions, at most ten. Each of their addresses has the limit caller_requests_per_minute."
  type        = list(string)
  default     = []

  validation {
    condition     = length(var.caller_ranges) <= 10 && alltrue([for r in var.caller_ranges : can(cidrhost(r, 0))])
    error_message = "caller_ranges must be at most ten ranges such as 192.0.2.7/32 or 2001:db8::/48."
  }
}

variable "caller_requests_per_minute" {
  description = "The number of requests of one address of caller_ranges in a minute above which Cloud Armor answers 429. The default is 3,000 a second: more than one create each at the measured rate."
  type        = number
  default     = 180000

  validation {
    condition     = var.caller_requests_per_minute >= var.requests_per_minute
    error_message = "caller_requests_per_minute must not be below requests_per_minute, the limit of every other address."
  }
}

variable "armor_preview" {
  description = "Whether Cloud Armor's rules only log the requests that they would refuse. Set true for a while to see the effect of a new rule. Prod refuses true."
  type        = bool
  default     = false

  validation {
    condition     = !var.armor_preview || var.environment != "prod"
    error_message = "armor_preview must be false in prod: in preview the limit of requests and the rule against injection refuse nothing."
  }
}

variable "collector_image" {
  description = "The OpenTelemetry collector beside each function by digest, us-docker.pkg.dev/cloud-ops-agents-artifacts/google-cloud-opentelemetry-collector/otelcol-google@sha256:…; docs/runbooks/first-deploy.md has the command that finds it. Null: no metric is exported, and the alerts on metrics are not created. Prod requires it."
  type        = string
  default     = null

  validation {
    condition     = var.collector_image == null || can(regex("@sha256:[0-9a-f]{64}$", var.collector_image))
    error_message = "collector_image must name a digest (…@sha256:…): it runs beside the function that signs, and a tag can point to another image later."
  }

  validation {
    condition     = var.environment != "prod" || var.image == null || var.collector_image != null
    error_message = "collector_image must be set in prod: without it no metric is exported, and the alerts on metrics are not created."
  }
}

variable "in_flight_seconds" {
  description = "The age of the oldest open nonce, in seconds, above which an alert fires. Choose several times the time to finality, and less than stuck.after."
  type        = number
  default     = 1200
}

variable "refused_requests" {
  description = "The number of refusals in five minutes above which an alert fires: answers of 401 and 403 of one function, or intents beyond a policy."
  type        = number
  default     = 100
}

variable "notification_channels" {
  description = "Full names of the Cloud Monitoring channels that get the alerts. Create them by hand: they hold addresses and tokens."
  type        = list(string)
  default     = []
}

variable "runbooks_url" {
  description = "The URL of the folder docs/runbooks, without a slash at its end. Each alert links its page there."
  type        = string
  default     = "https://github.com/fencepost/fencepost/blob/main/docs/runbooks"
}

variable "events" {
  description = "The delivery of transactions' events (docs/events.md). mode: log, mq_outbox (a Pub/Sub topic) or webhook. endpoints: the endpoints' https URLs by name. callers: by endpoint, the callers whose events it gets; without an entry it gets all. Null: no events."
  type = object({
    mode      = string
    endpoints = optional(map(string), {})
    callers   = optional(map(set(string)), {})
  })
  default = null

  validation {
    condition     = var.events == null || contains(["log", "mq_outbox", "webhook"], try(var.events.mode, ""))
    error_message = "events.mode must be log, mq_outbox or webhook; null means poll."
  }

  validation {
    condition     = var.events == null || (try(var.events.mode, "") == "webhook") == (length(try(var.events.endpoints, {})) > 0)
    error_message = "events.endpoints must be given with events.mode webhook, and with no other mode."
  }

  validation {
    condition     = var.events == null || length(setsubtract(keys(try(var.events.callers, {})), keys(try(var.events.endpoints, {})))) == 0
    error_message = "events.callers names an endpoint that events.endpoints does not have."
  }
}

variable "events_subscribers" {
  description = "IAM members that may subscribe to the topic of events, such as serviceAccount:shop@other.iam.gserviceaccount.com."
  type        = set(string)
  default     = []
}
