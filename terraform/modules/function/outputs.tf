output "name" {
  value = google_cloud_run_v2_service.this.name
}

output "uri" {
  value = google_cloud_run_v2_service.this.uri
}

output "account" {
  description = "Who it runs as."
  value       = google_cloud_run_v2_service.this.template[0].service_account
}

output "ingress" {
  description = "Where requests may come from."
  value       = google_cloud_run_v2_service.this.ingress
}

output "checks_callers" {
  description = "Whether Cloud Run asks callers for a token before the function does."
  value       = !google_cloud_run_v2_service.this.invoker_iam_disabled
}

output "invokers" {
  description = "Whom Cloud Run lets in."
  value       = [for grant in google_cloud_run_v2_service_iam_member.invoker : grant.member]
}
