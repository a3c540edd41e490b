variable "others" {
  description = "Further backend services of this project with a path, by the function behind each: the console."
  type        = map(object({ backend = string, paths = list(string) }))
  default     = {}
}

output "public_policy" {
  description = "The policy of Cloud Armor for everything public."
  value       = google_compute_security_policy.public.id
}

locals {
  all_paths = merge({ for name, s in var.services : name => s.paths }, { for name, o in var.others : name => o.paths })
  backends  = merge({ for name, b in google_compute_backend_service.service : name => b.id }, { for name, o in var.others : name => o.backend })
}
