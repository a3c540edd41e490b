variable "name" {
  type = string
}

variable "region" {
  type = string
}

variable "subnet_range" {
  type = string
}
