variable "name" {
  type = string
}

variable "region" {
  type = string
}

variable "image" {
  type = string
}

variable "account" {
  type = string
}

variable "network" {
  type = string
}

variable "subnet" {
  type = string
}

variable "instance" {
  description = "The database's connection name."
  type        = string
}

variable "database_url" {
  type = string
}

variable "readers" {
  description = "People's names in Postgres, which get to read rows."
  type        = list(string)
}

variable "database_roles" {
  description = "The functions' names in Postgres, by function. Each gets its function's rights, as migrations/grants.json has them."
  type        = map(string)
}

variable "environment" {
  description = "Further variables: where the mark outside the database is."
  type        = map(string)
}

variable "attested" {
  description = "Whether only images start that the project's policy of Binary Authorization admits."
  type        = bool
}
