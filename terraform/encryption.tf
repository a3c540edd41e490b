# The key of your own: Google's services encrypt by it, as agents of theirs. It is made, and kept, outside Terraform:
# the deploying account needs no right to destroy it.

# Cloud Logging's agent is one of its settings, which says it once it is asked.
data "google_logging_project_cmek_settings" "this" {
  count = var.encryption_key == null || var.audit_lock_days == null ? 0 : 1

  project = var.project
}

locals {
  agents = var.encryption_key == null ? {} : merge({
    for service, domain in {
      database = "gcp-sa-cloud-sql"
      events   = "gcp-sa-pubsub"
      images   = "gcp-sa-artifactregistry"
      mark     = "gs-project-accounts"
      secrets  = "gcp-sa-secretmanager"
      tasks    = "gcp-sa-cloudtasks"
    } : service => "serviceAccount:service-${data.google_project.this.number}@${domain}.iam.gserviceaccount.com"
    }, var.audit_lock_days == null ? {} : {
    log = "serviceAccount:${data.google_logging_project_cmek_settings.this[0].service_account_id}"
  })
}

resource "google_kms_crypto_key_iam_member" "encrypts" {
  for_each = local.agents

  crypto_key_id = var.encryption_key
  role          = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
  member        = each.value
}

resource "google_kms_crypto_key_iam_member" "encrypts_replica" {
  count = var.database.replica_key == null ? 0 : 1

  crypto_key_id = var.database.replica_key
  role          = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
  member        = "serviceAccount:service-${data.google_project.this.number}@gcp-sa-cloud-sql.iam.gserviceaccount.com"
}
