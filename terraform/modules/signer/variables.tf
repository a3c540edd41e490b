variable "ring" {
  type = string
}

variable "location" {
  description = "A region, or a multi-region such as europe."
  type        = string
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
