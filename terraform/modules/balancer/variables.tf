variable "name" {
  type = string
}

variable "region" {
  type = string
}

variable "domain" {
  type = string
}

variable "services" {
  description = "The public functions: their services, and the paths that lead to each."
  type        = map(object({ service = string, paths = list(string) }))
}

variable "fallback" {
  description = "The function that answers what is on no list."
  type        = string
}

variable "admin" {
  description = "The function of operators."
  type        = string
}

variable "admin_ranges" {
  type = list(string)
}

variable "requests_per_minute" {
  type = number
}

variable "preview" {
  type = bool
}
