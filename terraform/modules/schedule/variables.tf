variable "name" {
  type = string
}

variable "region" {
  type = string
}

variable "schedule" {
  description = "In cron's form, in UTC."
  type        = string
}

variable "deadline" {
  description = "How long a run may take."
  type        = string
}

variable "uri" {
  type = string
}

variable "body" {
  type = any
}

variable "account" {
  type = string
}

variable "audience" {
  type = string
}
