variable "prefix" {
  description = "What a shard's name begins with; its number follows."
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
    error_message = "max_attempts must be -1: a task that gives up has used up its name."
  }

  validation {
    condition     = tonumber(trimsuffix(var.settings.max_backoff, "s")) <= 10
    error_message = "max_backoff must be 10s or less: a holder that died is waited out for about as long."
  }
}

variable "max_concurrent_dispatches" {
  type = number
}

variable "capacity" {
  description = "How many requests all instances of the function serve at once."
  type        = number
}

variable "enqueuers" {
  description = "The members that may make tasks, by function."
  type        = map(string)
}
