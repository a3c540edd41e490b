output "uri" {
  value = google_cloud_scheduler_job.this.http_target[0].uri
}

output "token" {
  description = "The service account whose token the job's calls carry, and the token's audience."
  value       = google_cloud_scheduler_job.this.http_target[0].oidc_token[0]
}
