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
  description = "The readers' names in Postgres. They get the right to read rows."
  type        = list(string)
}

variable "database_roles" {
  description = "The functions' names in Postgres, by function. Each gets the rights that migrations/grants.json lists for its function."
  type        = map(string)
}

variable "environment" {
  description = "Further variables, such as the location of the mark outside the database."
  type        = map(string)
}

variable "attested" {
  description = "Whether Cloud Run starts only images that the project's policy of Binary Authorization admits."
  type        = bool
}
