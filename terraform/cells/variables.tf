variable "project" {
  description = "The Google Cloud project of the common load balancer. It may be the project of a cell."
  type        = string
}

variable "name" {
  description = "The beginning of each resource's name. It must differ from the name of each cell in the same project."
  type        = string
  default     = "fencepost-cells"
}

variable "domain" {
  description = "The host name of all cells, such as api.example.com. You create its A record by hand, from the output address."
  type        = string
}

# The one list of which account is in which cell. The URL map, the grants on keys and the clients' list are made from it.
variable "cells" {
  description = "The cells by name. Each is a deployment of terraform/: its project, region and name. accounts: each account of the cell, with the name of its key in the cell's signing_keys; an empty name is a key outside Cloud KMS. transfers: whether the deployment has transfers. key_location and key_ring: its signer_location and signing_key_ring, if it has these."
  type = map(object({
    project      = string
    region       = optional(string, "europe-west1")
    name         = optional(string, "fencepost")
    accounts     = map(string)
    transfers    = optional(bool, false)
    key_location = optional(string)
    key_ring     = optional(string)
  }))

  validation {
    condition     = length(var.cells) > 0 && alltrue([for name in keys(var.cells) : can(regex("^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$", name))])
    error_message = "cells must have at least one cell; each name is 1 to 30 lower-case letters, digits and hyphens, and begins with a letter."
  }

  validation {
    condition     = length(distinct([for c in values(var.cells) : "${c.project} ${c.name}"])) == length(var.cells)
    error_message = "cells names one deployment twice: two cells must differ in project or name."
  }

  validation {
    condition     = alltrue([for c in values(var.cells) : alltrue([for account in keys(c.accounts) : can(regex("^eip155:[1-9][0-9]*:0x[0-9a-f]{40}$", account))])])
    error_message = "each account in cells must be eip155:CHAIN:0x and 40 hex digits in lower case."
  }

  # The guard. An address is one key, also on several chains, and two databases that count its nonces would both use each.
  validation {
    condition = alltrue([
      for one, c in var.cells : alltrue([
        for other, d in var.cells : one == other || length(setintersection(
          [for account in keys(c.accounts) : reverse(split(":", account))[0]],
          [for account in keys(d.accounts) : reverse(split(":", account))[0]],
        )) == 0
      ])
    ])
    error_message = "cells has an account in two cells, or one address in two cells for two chains. Its key would sign for two databases. Leave it in one cell."
  }
}
