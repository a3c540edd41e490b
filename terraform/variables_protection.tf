# What this deployment is protected by, beside the defaults.

variable "signing_subnet_range" {
  description = "The addresses of the functions that sign, or that hold a signing service's credentials: a subnet of their own, whose egress has rules of its own. About four for each of their max_instances."
  type        = string
  default     = "10.8.4.0/24"
}

variable "egress" {
  description = "What the functions may reach outside Google Cloud. hosts are those of the nodes in the secrets rpc-urls and chains, signer_hosts those of the secret signer-remotes, without scheme, port and path; ranges and signer_ranges are addresses of the same kinds that have no name. The hosts in oidc, transfers, handlers and events are allowed without being listed. ports are those of all these hosts. nat_addresses is how many static addresses the requests come from; one serves some 250 instances. open allows every host, and is refused in prod."
  type = object({
    open          = optional(bool, false)
    hosts         = optional(set(string), [])
    signer_hosts  = optional(set(string), [])
    ranges        = optional(set(string), [])
    signer_ranges = optional(set(string), [])
    ports         = optional(set(string), ["443"])
    nat_addresses = optional(number, 1)
  })
  default = {}

  validation {
    condition     = !var.egress.open || var.environment != "prod"
    error_message = "egress.open is refused in prod: a function that is broken into could send its secrets anywhere. List the nodes' hosts in egress.hosts."
  }

  validation {
    condition     = var.image == null || var.egress.open || length(var.egress.hosts) + length(var.egress.ranges) > 0
    error_message = "egress.hosts must name the hosts of the nodes in the secret rpc-urls, such as mainnet.example.com: the functions reach no other."
  }

  validation {
    condition     = var.image == null || var.egress.open || !contains(var.signers, "remote") || length(var.egress.signer_hosts) + length(var.egress.signer_ranges) > 0
    error_message = "signers names remote: egress.signer_hosts, or egress.signer_ranges, must name the hosts in the secret signer-remotes."
  }

  validation {
    condition     = alltrue([for h in setunion(var.egress.hosts, var.egress.signer_hosts) : can(regex("^[a-z0-9-]+(\\.[a-z0-9-]+)*\\.[a-z][a-z0-9-]*$", h))])
    error_message = "egress.hosts and egress.signer_hosts must be host names in lower case without scheme, port, path or asterisk; addresses stand in egress.ranges and egress.signer_ranges."
  }

  validation {
    condition     = alltrue([for r in setunion(var.egress.ranges, var.egress.signer_ranges) : can(cidrnetmask(r)) && try(tonumber(split("/", r)[1]), 0) >= 8])
    error_message = "egress.ranges and egress.signer_ranges must be IPv4 ranges of /8 or narrower, such as 192.0.2.7/32: a wider one allows everything."
  }

  validation {
    condition     = length(var.egress.ports) > 0 && alltrue([for p in var.egress.ports : can(regex("^[1-9][0-9]{0,4}$", p))])
    error_message = "egress.ports must be ports such as \"443\"."
  }

  validation {
    condition     = var.egress.nat_addresses >= 1 && var.egress.nat_addresses <= 16 && floor(var.egress.nat_addresses) == var.egress.nat_addresses
    error_message = "egress.nat_addresses must be a whole number from 1 to 16."
  }
}

variable "binary_authorization" {
  description = "Attestors, as projects/P/attestors/A, all of which must have signed the functions' image before Cloud Run starts it. The project's one policy is set by it, so the project must be this deployment's alone. Null: every image of the right digest starts."
  type = object({
    attestors = set(string)
  })
  default = null

  validation {
    condition     = var.binary_authorization == null || try(length(var.binary_authorization.attestors) > 0 && alltrue([for a in var.binary_authorization.attestors : can(regex("^projects/[^/]+/attestors/[^/]+$", a))]), false)
    error_message = "binary_authorization.attestors must name one attestor or more, as projects/PROJECT/attestors/NAME."
  }
}

variable "encryption_key" {
  description = "The Cloud KMS key of your own, projects/P/locations/REGION/keyRings/R/cryptoKeys/K, by which the database, the secrets, the mark, the images, the events and the locked log are encrypted. It must be in the region, and be set before the first apply. Null: Google's keys."
  type        = string
  default     = null

  validation {
    condition     = var.encryption_key == null || can(regex("^projects/[^/]+/locations/${var.region}/keyRings/[^/]+/cryptoKeys/[^/]+$", var.encryption_key))
    error_message = "encryption_key must be a key's full name, without a version, in the region ${var.region}."
  }

  validation {
    condition     = var.encryption_key == null || var.mark_location == null || lower(coalesce(var.mark_location, "-")) == var.region
    error_message = "encryption_key is in the region, and mark_location is elsewhere: a bucket is encrypted by a key of its own location. Leave one of the two out."
  }
}

variable "audit_lock_days" {
  description = "For how many days audit logs are kept in a log bucket whose retention the project's owner cannot shorten, and which cannot be deleted while it has entries. It cannot be taken back. Null: they are kept in the project's own buckets, which an owner can change."
  type        = number
  default     = null

  validation {
    condition     = var.audit_lock_days == null || try(var.audit_lock_days >= 1 && var.audit_lock_days <= 3650 && floor(var.audit_lock_days) == var.audit_lock_days, false)
    error_message = "audit_lock_days must be a whole number of days from 1 to 3650."
  }
}
