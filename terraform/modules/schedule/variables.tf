variable "name" {
  type = string
}

variable "region" {
  type = string
}

variable "schedule" {
  description = "The schedule in cron's format, in UTC."
  type        = string
}

variable "deadline" {
  description = "The time limit of a run."
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
