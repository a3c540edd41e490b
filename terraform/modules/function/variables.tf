variable "name" {
  type = string
}

variable "region" {
  type = string
}

variable "target" {
  description = "FUNCTION_TARGET: which function of the image it serves."
  type        = string
}

variable "public" {
  description = "Whether the load balancer leads to it; else only tasks and jobs do."
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
  description = "How long a request may take, in seconds."
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
  description = "What tokens for an internal function are made for."
  type        = string
}

variable "invokers" {
  description = "The members that may call it, by what they are."
  type        = map(string)
}

variable "collector_image" {
  type = string
}

variable "deletion_protection" {
  type = bool
}

variable "attested" {
  description = "Whether only images start that the project's policy of Binary Authorization admits."
  type        = bool
}
