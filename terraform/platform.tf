data "google_project" "this" {
  project_id = var.project
}

resource "google_project_service" "api" {
  for_each = toset([
    "artifactregistry.googleapis.com",
    "binaryauthorization.googleapis.com",
    "cloudkms.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "cloudscheduler.googleapis.com",
    "cloudtasks.googleapis.com",
    "cloudtrace.googleapis.com",
    "compute.googleapis.com",
    "dns.googleapis.com",
    "iam.googleapis.com",
    "logging.googleapis.com",
    "monitoring.googleapis.com",
    "pubsub.googleapis.com",
    "run.googleapis.com",
    "secretmanager.googleapis.com",
    "servicenetworking.googleapis.com",
    "sqladmin.googleapis.com",
    "storage.googleapis.com",
  ])

  service            = each.key
  disable_on_destroy = false
}

resource "google_artifact_registry_repository" "images" {
  repository_id = var.name
  location      = var.region
  format        = "DOCKER"
  description   = "Images of the functions and of the migration job."
  kms_key_name  = var.encryption_key

  docker_config {
    immutable_tags = true
  }

  depends_on = [google_project_service.api, google_kms_crypto_key_iam_member.encrypts]
}

# Events, in the order of each submitter: subscriptions ask for message ordering, and drop what they have seen by
# txId, type and sequence.
resource "google_pubsub_topic" "events" {
  name                       = "${var.name}-events"
  message_retention_duration = "604800s"
  kms_key_name               = var.encryption_key

  message_storage_policy {
    allowed_persistence_regions = [var.region]
  }

  depends_on = [google_project_service.api, google_kms_crypto_key_iam_member.encrypts]
}

resource "google_pubsub_topic_iam_member" "publisher" {
  for_each = { for name, f in local.functions : name => f if f.publishes && local.events_mode == "mq_outbox" }

  topic  = google_pubsub_topic.events.name
  role   = "roles/pubsub.publisher"
  member = local.members[each.key]
}

resource "google_pubsub_topic_iam_member" "subscriber" {
  for_each = var.events_subscribers

  topic  = google_pubsub_topic.events.name
  role   = "roles/pubsub.subscriber"
  member = each.key
}
