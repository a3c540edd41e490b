variable "name" {
  type = string
}

variable "region" {
  type = string
}

variable "keys" {
  type = set(string)
}

variable "signers" {
  description = "The members that may sign, by function."
  type        = map(string)
}

variable "readers" {
  description = "The members that may read the public keys, by function."
  type        = map(string)
}
