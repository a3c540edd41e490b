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
  description = "The public functions: the service and the paths of each."
  type        = map(object({ service = string, paths = list(string) }))
}

variable "behind_default" {
  description = "The function that the URL map's defaults name. A default is required, and no request uses it."
  type        = string
}

variable "admin" {
  description = "The service of the admin function."
  type        = string
}

variable "admin_ranges" {
  type = list(string)
}

variable "requests_per_minute" {
  type = number
}

variable "caller_ranges" {
  description = "The addresses that have the limit caller_requests_per_minute."
  type        = list(string)
}

variable "caller_requests_per_minute" {
  type = number
}

variable "preview" {
  type = bool
}
