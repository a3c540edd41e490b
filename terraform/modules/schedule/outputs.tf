output "uri" {
  value = google_cloud_scheduler_job.this.http_target[0].uri
}

output "token" {
  description = "Whose token its calls carry, and for whom."
  value       = google_cloud_scheduler_job.this.http_target[0].oidc_token[0]
}
