# The queue of one kind of work, in as many shards as there are. The code picks the shard by the submitter's hash. For up
# to seven days Cloud Tasks refuses a queue with the name of one that was deleted.

resource "google_cloud_tasks_queue" "shard" {
  count = var.shards

  name     = "${var.prefix}-${count.index}"
  location = var.region

  rate_limits {
    max_dispatches_per_second = var.settings.max_dispatches_per_second
    max_concurrent_dispatches = var.max_concurrent_dispatches
  }

  # Tried without end, soon, and never further apart than ten seconds: a task that gives up is a wake-up that is lost
  # until the sweep, with its name used up.
  retry_config {
    max_attempts       = var.settings.max_attempts
    max_retry_duration = "0s"
    min_backoff        = var.settings.min_backoff
    max_backoff        = var.settings.max_backoff
    max_doublings      = var.settings.max_doublings
  }

  # Functions make tasks without knowing where the others are; the path is theirs, the host is the queue's.
  http_target {
    uri_override {
      scheme                    = "HTTPS"
      host                      = var.host
      uri_override_enforce_mode = "ALWAYS"
    }
  }

  stackdriver_logging_config {
    sampling_ratio = 0.01
  }

  lifecycle {
    precondition {
      condition     = var.capacity >= var.shards * var.max_concurrent_dispatches
      error_message = "${var.shards} shards of ${var.prefix} send ${var.shards * var.max_concurrent_dispatches} tasks at once, and the function's instances take ${var.capacity}: Cloud Run would answer 429, which slows the queue. Raise its max_instances or concurrency."
    }
  }
}

locals {
  grants = { for pair in setproduct(range(var.shards), keys(var.enqueuers)) : "${pair[0]} ${pair[1]}" => { shard = pair[0], member = var.enqueuers[pair[1]] } }
}

resource "google_cloud_tasks_queue_iam_member" "enqueuer" {
  for_each = local.grants

  name     = google_cloud_tasks_queue.shard[each.value.shard].name
  location = var.region
  role     = "roles/cloudtasks.enqueuer"
  member   = each.value.member
}
