# Logs of key uses, secret reads and logins to the database. Google logs them for these services only on request.

resource "google_project_iam_audit_config" "access" {
  for_each = toset(["cloudkms.googleapis.com", "cloudsql.googleapis.com", "secretmanager.googleapis.com"])

  project = var.project
  service = each.key

  dynamic "audit_log_config" {
    for_each = ["ADMIN_READ", "DATA_READ", "DATA_WRITE"]

    content {
      log_type = audit_log_config.value
    }
  }

  depends_on = [google_project_service.api]
}

# A second copy of the audit logs, which the project's owner cannot shorten or delete either.
resource "google_logging_project_bucket_config" "audit" {
  count = var.audit_lock_days == null ? 0 : 1

  project        = var.project
  location       = var.region
  bucket_id      = "${var.name}-audit"
  description    = "Audit logs, locked"
  retention_days = var.audit_lock_days
  locked         = true

  dynamic "cmek_settings" {
    for_each = var.encryption_key == null ? [] : [var.encryption_key]

    content {
      kms_key_name = cmek_settings.value
    }
  }

  lifecycle {
    prevent_destroy = true
  }

  depends_on = [google_project_service.api, google_kms_crypto_key_iam_member.encrypts]
}

# A destination in the same project needs no grant. Cloud SQL writes what pgAudit logs as data access.
resource "google_logging_project_sink" "audit" {
  count = var.audit_lock_days == null ? 0 : 1

  name                   = "${var.name}-audit"
  destination            = "logging.googleapis.com/${google_logging_project_bucket_config.audit[0].id}"
  filter                 = "log_id(\"cloudaudit.googleapis.com/activity\") OR log_id(\"cloudaudit.googleapis.com/data_access\") OR log_id(\"cloudaudit.googleapis.com/policy\")"
  unique_writer_identity = true
}
