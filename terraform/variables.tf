# What every deployment must say.

variable "project" {
  description = "The Google Cloud project that everything is made in."
  type        = string
}

variable "environment" {
  description = "Which of the environments this is."
  type        = string

  validation {
    condition     = contains(["dev", "staging", "prod"], var.environment)
    error_message = "environment must be dev, staging or prod."
  }
}

variable "domain" {
  description = "The host name of the public API, such as api.example.com. Its A record is made by hand, from the output address."
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
  description = "Who may call the admin functions: email: and a verified e-mail address, or sub: and the subject of a token, such as a service account's unique id. An address alone is read as email:."
  type        = set(string)

  validation {
    condition     = alltrue([for o in var.operators : can(regex("^(email:[^\\s@,]+@[^\\s@,]+|sub:[^\\s,]+|[^\\s@,:]+@[^\\s@,]+)$", o))])
    error_message = "operators are email:<e-mail address> or sub:<subject>."
  }
}

variable "approvals" {
  description = "Kinds of operators' acts that one operator proposes and another has to approve, as docs/approvals.md describes, and how long a proposal may wait. Kinds: policy, callers, signer, register, release, accept, adjustments. Empty: one operator does everything alone."
  type = object({
    required  = optional(set(string), [])
    valid_for = optional(string, "24h")
  })
  default  = {}
  nullable = false

  validation {
    condition     = length(setsubtract(var.approvals.required, ["policy", "callers", "signer", "register", "release", "accept", "adjustments"])) == 0
    error_message = "approvals.required is any of policy, callers, signer, register, release, accept, adjustments."
  }

  validation {
    condition     = length(var.approvals.required) == 0 || length(var.operators) >= 2
    error_message = "approvals.required needs two people in operators: who proposes does not approve."
  }
}

variable "readers" {
  description = "E-mail addresses of the people who may read the database, to look into what an alert is about. Nothing in it is a key; intents and balances are."
  type        = set(string)
  default     = []
}

variable "image" {
  description = "The functions' image by digest, HOST/PROJECT/REPOSITORY/NAME@sha256:…. Null deploys everything but the functions and what leads to them."
  type        = string
  default     = null

  validation {
    condition     = var.image == null || can(regex("@sha256:[0-9a-f]{64}$", var.image))
    error_message = "image must name a digest: a tag can come to mean something else between two instances."
  }
}

variable "migrate_image" {
  description = "The image of the migration job, where it goes ahead of the functions' one; null: the same."
  type        = string
  default     = null

  validation {
    condition     = var.migrate_image == null || can(regex("@sha256:[0-9a-f]{64}$", var.migrate_image))
    error_message = "migrate_image must name a digest."
  }
}

# What has a default.

variable "region" {
  description = "The region of everything that has one."
  type        = string
  default     = "europe-west1"
}

variable "name" {
  description = "What each resource's name begins with; also the prefix of the queues."
  type        = string
  default     = "fencepost"

  validation {
    # fencepost-conservation-full is 10 + 17 long, and an account's name has 30 characters.
    condition     = can(regex("^[a-z][a-z0-9-]{0,10}[a-z0-9]$", var.name))
    error_message = "name must be 2 to 12 lower-case letters, digits and hyphens, and begin with a letter."
  }
}

variable "subnet_range" {
  description = "The addresses that instances take for their way to the database. Each instance holds one, for a while after its end too: about four for each of max_instances."
  type        = string
  default     = "10.8.0.0/22"
}

variable "queue_shards" {
  description = "Over how many queues each kind of work is spread by submitter; one queue dispatches at most 500 tasks a second."
  type        = number
  default     = 1

  validation {
    condition     = var.queue_shards >= 1 && var.queue_shards <= 100 && floor(var.queue_shards) == var.queue_shards
    error_message = "queue_shards must be a whole number from 1 to 100."
  }
}

variable "default_max_instances" {
  description = "The most instances of a function for which functions.json and max_instances say nothing."
  type        = number
  default     = 10
}

variable "max_instances" {
  description = "The most instances of a function, by name, over what functions.json says."
  type        = map(number)
  default     = {}

  validation {
    condition     = alltrue([for name in keys(var.max_instances) : contains(keys(jsondecode(file("${path.module}/functions.json"))), name)])
    error_message = "max_instances names a function that functions.json has not."
  }
}

variable "min_instances" {
  description = "Instances that are kept warm, by function. Each is billed while idle."
  type        = map(number)
  default     = {}
}

variable "concurrency" {
  description = "How many requests one instance serves at once."
  type        = number
  default     = 40
}

variable "database" {
  description = "The size of the Cloud SQL instance. connections_reserved is kept free for people, backups and the migration. pgaudit are the classes of statements that pgAudit logs: ddl,role is right, since a class such as write logs each transaction's statements with their values."
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
  })
  default = {}

  validation {
    # Before 17 nothing in the server ends a transaction whose client was frozen in the middle of a batch.
    condition     = can(regex("^POSTGRES_(1[7-9]|[2-9][0-9])$", var.database.version))
    error_message = "database.version must be POSTGRES_17 or later: transaction_timeout is needed."
  }
}

variable "database_instance_name" {
  description = "The Cloud SQL instance's name, where it is not name: that of the new instance after a restore."
  type        = string
  default     = null

  validation {
    condition     = var.database_instance_name == null || can(regex("^[a-z][a-z0-9-]{0,78}[a-z0-9]$", var.database_instance_name))
    error_message = "database_instance_name must be lower-case letters, digits and hyphens, and begin with a letter."
  }
}

variable "mark_location" {
  description = "Where the mark outside the database is kept, by which a restore is noticed; null: in the region. A multi-region such as EU outlives the region."
  type        = string
  default     = null
}

variable "mark_bucket" {
  description = "The bucket of the mark, where it is not project-name-mark: that of a deployment in a region that was lost. It is imported."
  type        = string
  default     = null
}

variable "deletion_protection" {
  description = "Whether the database, the functions and the keys refuse to be destroyed. In prod always."
  type        = bool
  default     = true

  validation {
    condition     = var.deletion_protection || var.environment != "prod"
    error_message = "deletion_protection cannot be switched off in prod."
  }
}

variable "secret_versions" {
  description = "The versions in use of the secrets rpc-urls, intent-mac-keys, chains, signer-keys, signer-remotes, handler-secrets and trading-secret. Numbers, so that an instance started tomorrow reads what one started today did."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for v in values(var.secret_versions) : can(regex("^[1-9][0-9]*$", v))])
    error_message = "secret_versions must be numbers; latest is not a version."
  }
}

variable "more_chains" {
  description = "Whether more chains are served than the default one. They are the secret chains, a JSON list as docs/chains.md has it."
  type        = bool
  default     = false
}

variable "handlers" {
  description = "The business services that make transactions, by name: their https URLs, which advance reaches. What signs the questions to them is the secret handler-secrets, name=whsec_… separated by commas, which advance alone reads."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name, url in var.handlers : can(regex("^[a-z][a-z0-9_.-]{0,63}$", name)) && can(regex("^https://[^,?#@ ]+$", url))])
    error_message = "handlers must be names of lower-case letters, digits, dots, dashes and underscores, and https URLs without query."
  }
}

variable "signers" {
  description = "The kinds of signers that this deployment has: kms (signing_keys), remote (the services in the secret signer-remotes) and local (the keys in the secret signer-keys). Several may be there at once; a submitter's registration names one. kms is right for prod: the keys stay in the HSM. local is for trying things out."
  type        = set(string)
  default     = ["kms"]

  validation {
    condition     = length(var.signers) > 0 && length(setsubtract(var.signers, ["local", "kms", "remote"])) == 0
    error_message = "signers must name one or more of kms, remote and local."
  }

  validation {
    condition     = !contains(var.signers, "local") || var.environment != "prod"
    error_message = "signers names local in prod: a process that is broken into would give its keys away. Name kms or remote."
  }

  validation {
    condition     = !contains(var.signers, "kms") || var.image == null || length(var.signing_keys) > 0
    error_message = "signers names kms, and there is no key to sign by: name one in signing_keys."
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

variable "transfers" {
  description = "The trading core, and whose tokens say who a user is. Null: no transfers are offered, and nothing of theirs is deployed."
  type = object({
    trading_url    = string
    users_issuer   = string
    users_jwks_url = string
    users_audience = string
  })
  default = null
}

variable "oidc" {
  description = "Whose tokens callers, operators, tasks and the scheduler bring. open says whether people outside your organization get tokens of this issuer too, as they do of Google's: then a submitter's callers must be named one by one, never as *. Prod must say it."
  type = object({
    issuer   = optional(string, "https://accounts.google.com")
    jwks_url = optional(string, "https://www.googleapis.com/oauth2/v3/certs")
    open     = optional(bool)
  })
  default = {}

  validation {
    condition     = var.environment != "prod" || var.oidc.open != null
    error_message = "oidc.open must be said in prod: true if everybody can get a token of this issuer, false if your organization's accounts alone can."
  }

  validation {
    condition     = var.oidc.open != false || var.oidc.issuer != "https://accounts.google.com"
    error_message = "oidc.open is true of https://accounts.google.com: everybody with a Google account gets its tokens for any audience."
  }
}

variable "settings" {
  description = "Further settings of all functions, as docs/settings.md lists them. They come last. Secrets have no place here."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name in keys(var.settings) : startswith(name, "FENCEPOST_")])
    error_message = "settings must be variables that begin with FENCEPOST_."
  }

  validation {
    condition     = length(setintersection(keys(var.settings), ["FENCEPOST_RPC_URLS", "FENCEPOST_CHAINS", "FENCEPOST_TRADING_SECRET", "FENCEPOST_DATABASE_URL"])) == 0
    error_message = "FENCEPOST_RPC_URLS, FENCEPOST_CHAINS and FENCEPOST_TRADING_SECRET are read from Secret Manager, and FENCEPOST_DATABASE_URL is made for each function."
  }
}

variable "admin_ranges" {
  description = "Addresses that may reach the admin paths at all, at most ten ranges, such as your office's and your VPN's. Empty: none, and the admin paths answer 404. [\"*\"] lets every address in, so that the operators' tokens alone decide; prod refuses it."
  type        = list(string)
  default     = []

  validation {
    condition     = length(var.admin_ranges) <= 10
    error_message = "one rule of Cloud Armor takes at most ten ranges."
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
  description = "How many requests one address may make a minute before Cloud Armor answers 429."
  type        = number
  default     = 6000
}

variable "armor_preview" {
  description = "Whether Cloud Armor's rules only log what they would refuse. False is right; true for a while where the log has to show first what a new rule refuses. Prod refuses true."
  type        = bool
  default     = false

  validation {
    condition     = !var.armor_preview || var.environment != "prod"
    error_message = "armor_preview must be false in prod: in preview the limit of requests and the rule against injection refuse nothing."
  }
}

variable "collector_image" {
  description = "The OpenTelemetry collector beside each function by digest, us-docker.pkg.dev/cloud-ops-agents-artifacts/google-cloud-opentelemetry-collector/otelcol-google@sha256:…; docs/deploy.md has the command that finds it. Null: nothing is exported, and alerts upon metrics are not made. Prod must have one."
  type        = string
  default     = null

  validation {
    condition     = var.collector_image == null || can(regex("@sha256:[0-9a-f]{64}$", var.collector_image))
    error_message = "collector_image must name a digest: it runs beside the function that signs, and a tag can come to mean something else."
  }

  validation {
    condition     = var.environment != "prod" || var.image == null || var.collector_image != null
    error_message = "collector_image must be given in prod: without it no metric is exported, and alerts upon metrics are not made."
  }
}

variable "in_flight_seconds" {
  description = "How long the oldest nonce may be held before somebody is told: several times what finality takes, and less than stuck.after."
  type        = number
  default     = 1200
}

variable "refused_requests" {
  description = "How many requests in five minutes may be refused before somebody is told: answers of 401 and 403 of one function, or intents beyond a policy."
  type        = number
  default     = 100
}

variable "notification_channels" {
  description = "Full names of the Cloud Monitoring channels that alerts go to. Made by hand: they hold addresses and tokens."
  type        = list(string)
  default     = []
}

variable "runbooks_url" {
  description = "Where the folder docs/runbooks can be read, without a slash at its end. Each alert links its page there."
  type        = string
  default     = "https://github.com/fencepost/fencepost/blob/main/docs/runbooks"
}

variable "events" {
  description = "Who is told what became of transactions, as docs/events.md says: log, mq_outbox (the topic) or webhook (endpoints by name, with the URL of each, and of whose transactions alone it is told). Null: nobody."
  type = object({
    mode      = string
    endpoints = optional(map(string), {})
    callers   = optional(map(set(string)), {})
  })
  default = null

  validation {
    condition     = var.events == null || contains(["log", "mq_outbox", "webhook"], try(var.events.mode, ""))
    error_message = "events.mode is log, mq_outbox or webhook; null is poll."
  }

  validation {
    condition     = var.events == null || (try(var.events.mode, "") == "webhook") == (length(try(var.events.endpoints, {})) > 0)
    error_message = "events.endpoints are told with events.mode webhook, and with no other."
  }

  validation {
    condition     = var.events == null || length(setsubtract(keys(try(var.events.callers, {})), keys(try(var.events.endpoints, {})))) == 0
    error_message = "events.callers names an endpoint that events.endpoints does not have."
  }
}

variable "events_subscribers" {
  description = "Accounts that may read events by a subscription of their own, as IAM members such as serviceAccount:shop@other.iam.gserviceaccount.com."
  type        = set(string)
  default     = []
}
