variable "name" {
  type = string
}

variable "runbooks_url" {
  type = string
}

variable "notification_channels" {
  type = list(string)
}

variable "metrics" {
  description = "Whether the functions' own metrics are exported."
  type        = bool
}

variable "transfers" {
  type = bool
}

variable "events" {
  description = "Whether endpoints are told of events."
  type        = bool
}

variable "jobs" {
  description = "How many runs of each job must succeed within which time."
  type        = map(object({ runs = number, window = string }))
}

variable "in_flight_seconds" {
  description = "How long the oldest nonce may be held before somebody is told."
  type        = number
}

variable "refused_requests" {
  description = "How many requests in five minutes may be refused, by 401 and 403 or by a policy, before somebody is told."
  type        = number
}

variable "max_connections" {
  type = number
}

variable "database_id" {
  description = "project:instance, as Cloud Monitoring names a database."
  type        = string
}
