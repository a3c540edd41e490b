output "names" {
  value = google_cloud_tasks_queue.shard[*].name
}

output "host" {
  description = "The host to which the queue sends its tasks, in place of the host in a task's URL."
  value       = google_cloud_tasks_queue.shard[0].http_target[0].uri_override[0].host
}

output "enqueuers" {
  description = "The members that may create tasks."
  value       = distinct([for grant in google_cloud_tasks_queue_iam_member.enqueuer : grant.member])
}
