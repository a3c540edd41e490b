variable "name" {
  type = string
}

variable "project" {
  type = string
}

variable "host" {
  description = "The host name of the public API, which the uptime check calls."
  type        = string
}

variable "queue_prefix" {
  description = "The beginning of the queues' names."
  type        = string
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
  description = "Whether events are delivered to endpoints."
  type        = bool
}

variable "jobs" {
  description = "The number of runs of each job that must succeed, and within which time."
  type        = map(object({ runs = number, window = string }))
}

variable "in_flight_seconds" {
  description = "The age of the oldest open nonce, in seconds, above which the alert fires."
  type        = number
}

variable "refused_requests" {
  description = "The number of requests in five minutes, refused by 401 and 403 or by a policy, above which an alert fires."
  type        = number
}

variable "max_connections" {
  type = number
}

variable "database_id" {
  description = "project:instance, as Cloud Monitoring names a database."
  type        = string
}
