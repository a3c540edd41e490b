output "pages" {
  description = "The pages that docs/runbooks must have."
  value       = sort(distinct([for p in values(local.policies) : p.page]))
}
