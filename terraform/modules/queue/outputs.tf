output "names" {
  value = google_cloud_tasks_queue.shard[*].name
}

output "host" {
  description = "The URL to which the queue sends its tasks; the tasks' own URLs are not used."
  value       = google_cloud_tasks_queue.shard[0].http_target[0].uri_override[0].host
}

output "enqueuers" {
  description = "The members that may create tasks."
  value       = distinct([for grant in google_cloud_tasks_queue_iam_member.enqueuer : grant.member])
}
