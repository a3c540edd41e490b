variable "prefix" {
  description = "The beginning of a shard's name; the shard's number follows."
  type        = string
}

variable "region" {
  type = string
}

variable "shards" {
  type = number
}

variable "host" {
  description = "The host of the function that serves it."
  type        = string
}

variable "settings" {
  description = "queues.json."
  type = object({
    max_attempts              = number
    min_backoff               = string
    max_backoff               = string
    max_doublings             = number
    max_dispatches_per_second = number
  })

  validation {
    condition     = var.settings.max_attempts == -1
    error_message = "max_attempts must be -1: the name of a task that was given up cannot be used again, so its work would wait for the sweep."
  }

  validation {
    condition     = tonumber(trimsuffix(var.settings.max_backoff, "s")) <= 10
    error_message = "max_backoff must be 10s or less: after a crash the next attempt of a task waits up to this time."
  }
}

variable "max_concurrent_dispatches" {
  type = number
}

variable "capacity" {
  description = "The number of requests that all instances of the function serve at once."
  type        = number
}

variable "enqueuers" {
  description = "The members that may create tasks, by function."
  type        = map(string)
}
