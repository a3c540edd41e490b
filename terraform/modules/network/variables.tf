variable "name" {
  type = string
}

variable "region" {
  type = string
}

variable "subnet_range" {
  type = string
}

variable "signing_range" {
  description = "The addresses of the functions that sign."
  type        = string
}

variable "closed" {
  description = "Whether a firewall denies requests to hosts that are not listed."
  type        = bool
}

variable "egress" {
  description = "The hosts and ranges outside Google Cloud that each group of functions may reach: functions and signing."
  type        = map(object({ hosts = set(string), ranges = set(string) }))
}

variable "egress_ports" {
  description = "The ports of those hosts."
  type        = set(string)
}

variable "nat_addresses" {
  description = "The number of static addresses from which requests come."
  type        = number
}
