variable "name" {
  type = string
}

variable "region" {
  type = string
}

variable "target" {
  description = "FUNCTION_TARGET: the function of the image that the service runs."
  type        = string
}

variable "public" {
  description = "Whether the load balancer sends requests to the function. If false, only tasks and jobs call it."
  type        = bool
}

variable "unchecked" {
  description = "Whether Cloud Run's check of callers is off for an internal function too, which then verifies tokens alone."
  type        = bool
}

variable "image" {
  type = string
}

variable "account" {
  type = string
}

variable "network" {
  type = string
}

variable "subnet" {
  type = string
}

variable "timeout" {
  description = "The time limit of a request, in seconds."
  type        = number
}

variable "concurrency" {
  type = number
}

variable "min_instances" {
  type = number
}

variable "max_instances" {
  type = number
}

variable "cpu" {
  type    = string
  default = "1"
}

variable "memory" {
  type    = string
  default = "512Mi"
}

variable "environment" {
  type = map(string)
}

variable "secrets" {
  description = "Secrets that are read as variables, by variable."
  type        = map(object({ secret = string, version = string }))
}

variable "signer_files" {
  description = "The secrets with the local signer's keys and with the list of remote signers, by name: each is mounted as a file, and variable is where the function reads its path."
  type        = map(object({ secret = string, version = string, variable = string }))
}

variable "audience" {
  description = "The audience of tokens for an internal function."
  type        = string
}

variable "invokers" {
  description = "The members that may call the function, by kind of caller."
  type        = map(string)
}

variable "collector_image" {
  type = string
}

variable "deletion_protection" {
  type = bool
}

variable "attested" {
  description = "Whether Cloud Run starts only images that the project's policy of Binary Authorization admits."
  type        = bool
}
