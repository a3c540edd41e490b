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

variable "behind_default" {
  description = "The function that the URL map's defaults name, since they must name one. No request reaches it by them."
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
