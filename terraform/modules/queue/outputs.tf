output "names" {
  value = google_cloud_tasks_queue.shard[*].name
}
