output "pages" {
  description = "The pages that docs/runbooks must have."
  value       = sort(keys(local.policies))
}
