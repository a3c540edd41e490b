output "names" {
  value = google_cloud_tasks_queue.shard[*].name
}

output "host" {
  description = "Where its tasks go, whatever they say."
  value       = google_cloud_tasks_queue.shard[0].http_target[0].uri_override[0].host
}

output "enqueuers" {
  description = "Who may make tasks."
  value       = distinct([for grant in google_cloud_tasks_queue_iam_member.enqueuer : grant.member])
}
