variable "instance_name" {
  type = string
}

variable "region" {
  type = string
}

variable "network" {
  type = string
}

variable "size" {
  type = object({
    version              = string
    tier                 = string
    regional             = bool
    disk_gb              = number
    max_connections      = number
    connections_reserved = number
    log_retention_days   = number
    backups              = number
    pgaudit              = string
    region               = optional(string)
    replica_region       = optional(string)
    replica_key          = optional(string)
  })
}

variable "connections" {
  description = "The maximum of connections that all functions open."
  type        = number
}

variable "deletion_protection" {
  type = bool
}

variable "accounts" {
  description = "The functions' service accounts, by function."
  type        = map(string)
}

variable "readers" {
  description = "E-mail addresses of the people with read access to the database."
  type        = set(string)
}

variable "migrator_account" {
  type = string
}

variable "encryption_key" {
  description = "The Cloud KMS key that encrypts the disk and its backups; null: Google's."
  type        = string
}
