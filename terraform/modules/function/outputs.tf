output "name" {
  value = google_cloud_run_v2_service.this.name
}

output "uri" {
  value = google_cloud_run_v2_service.this.uri
}

output "account" {
  description = "The service account of the function."
  value       = google_cloud_run_v2_service.this.template[0].service_account
}

output "ingress" {
  description = "The sources of requests that Cloud Run accepts."
  value       = google_cloud_run_v2_service.this.ingress
}

output "checks_callers" {
  description = "Whether Cloud Run verifies a caller's token before the function does."
  value       = !google_cloud_run_v2_service.this.invoker_iam_disabled
}

output "invokers" {
  description = "The members whose calls Cloud Run accepts."
  value       = [for grant in google_cloud_run_v2_service_iam_member.invoker : grant.member]
}
