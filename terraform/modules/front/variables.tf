variable "name" {
  type = string
}

variable "domain" {
  type = string
}

variable "url_map" {
  description = "The id of the URL map."
  type        = string
}

variable "address" {
  description = "The id of the global address."
  type        = string
}
