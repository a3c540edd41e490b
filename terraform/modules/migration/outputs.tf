output "name" {
  value = google_cloud_run_v2_job.this.name
}
