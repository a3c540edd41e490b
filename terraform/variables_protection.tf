# What this deployment is protected by, beside the defaults.

variable "signing_subnet_range" {
  description = "The subnet of the functions that sign or hold a signing service's credentials. Its egress has separate rules. Plan about four addresses for each of their max_instances."
  type        = string
  default     = "10.8.4.0/24"
}

variable "egress" {
  description = "The hosts outside Google Cloud that the functions may reach. hosts: the nodes' hosts in the secrets rpc-urls and chains, without scheme, port and path. signer_hosts: those in the secret signer-remotes. ranges, signer_ranges: addresses of such hosts that have no name. The hosts in oidc, transfers, handlers and events are allowed anyway. ports: the ports of all these hosts. nat_addresses: the number of static addresses from which requests come; one serves some 250 instances. open: allow every host; refused in prod."
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
    error_message = "egress.open is refused in prod: an attacker in a function could send its secrets to any host. List the nodes' hosts in egress.hosts."
  }

  validation {
    condition     = var.image == null || var.egress.open || length(var.egress.hosts) + length(var.egress.ranges) > 0
    error_message = "egress.hosts must name the hosts of the nodes in the secret rpc-urls, such as mainnet.example.com: the functions reach no other."
  }

  validation {
    condition     = var.image == null || var.egress.open || !contains(var.signers, "remote") || length(var.egress.signer_hosts) + length(var.egress.signer_ranges) > 0
    error_message = "signers names remote: name the hosts of the secret signer-remotes in egress.signer_hosts or egress.signer_ranges."
  }

  validation {
    condition     = alltrue([for h in setunion(var.egress.hosts, var.egress.signer_hosts) : can(regex("^[a-z0-9-]+(\\.[a-z0-9-]+)*\\.[a-z][a-z0-9-]*$", h))])
    error_message = "egress.hosts and egress.signer_hosts must be host names in lower case without scheme, port, path or asterisk; give addresses in egress.ranges and egress.signer_ranges."
  }

  validation {
    condition     = alltrue([for r in setunion(var.egress.ranges, var.egress.signer_ranges) : can(cidrnetmask(r)) && try(tonumber(split("/", r)[1]), 0) >= 8])
    error_message = "egress.ranges and egress.signer_ranges must be IPv4 ranges of /8 or narrower, such as 192.0.2.7/32: a wider one allows everything."
  }

  validation {
    condition     = length(var.egress.ports) > 0 && alltrue([for p in var.egress.ports : can(regex("^[1-9][0-9]{0,4}$", p))])
    error_message = "egress.ports must be port numbers such as \"443\"."
  }

  validation {
    condition     = var.egress.nat_addresses >= 1 && var.egress.nat_addresses <= 16 && floor(var.egress.nat_addresses) == var.egress.nat_addresses
    error_message = "egress.nat_addresses must be a whole number from 1 to 16."
  }
}

variable "binary_authorization" {
  description = "Attestors, as projects/P/attestors/A. Cloud Run starts only images that all of them have signed. This sets the policy of the whole project, so use a separate project for this deployment. Null: an image needs no attestation."
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
  description = "Your Cloud KMS key, projects/P/locations/REGION/keyRings/R/cryptoKeys/K. It encrypts the database, the secrets, the mark, the images, the events and the locked log. It must be in the region, and be set before the first apply. Null: Google's keys."
  type        = string
  default     = null

  validation {
    condition     = var.encryption_key == null || can(regex("^projects/[^/]+/locations/${var.region}/keyRings/[^/]+/cryptoKeys/[^/]+$", var.encryption_key))
    error_message = "encryption_key must be a key's full name, without a version, in the region ${var.region}."
  }

  validation {
    condition     = var.encryption_key == null || var.mark_location == null || lower(coalesce(var.mark_location, "-")) == var.region
    error_message = "encryption_key is in the region and mark_location is not: a bucket needs a key in its location. Remove one of the two."
  }
}

variable "audit_lock_days" {
  description = "The number of days for which audit logs are kept in a locked log bucket. The project's owner cannot shorten this time or delete the bucket while it has entries, and the lock cannot be removed. Null: the logs are in the project's buckets, which an owner can change."
  type        = number
  default     = null

  validation {
    condition     = var.audit_lock_days == null || try(var.audit_lock_days >= 1 && var.audit_lock_days <= 3650 && floor(var.audit_lock_days) == var.audit_lock_days, false)
    error_message = "audit_lock_days must be a whole number of days from 1 to 3650."
  }
}

variable "internal_tokens_verified_once" {
  description = "Whether internal functions alone verify the tokens of tasks and jobs, with Cloud Run's check of callers off. Set true only where they answer each task 401, the token is not a valid one for this service: then Cloud Run's check removes the tokens' signatures. Requests from outside the project stay refused, and so does each token without a valid signature."
  type        = bool
  default     = false
  nullable    = false
}
