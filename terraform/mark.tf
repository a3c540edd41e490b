# The mark outside the database: one small object, by which a database is noticed that is not the one written last
# (docs/recovery.md, "The mark outside the database").

resource "google_storage_bucket" "mark" {
  # Bucket names are global, so the default has the project.
  name     = coalesce(var.mark_bucket, "${var.project}-${var.name}-mark")
  location = coalesce(var.mark_location, var.region)

  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = false

  # Each mark is a version of the object. No lifecycle rule deletes any: a year of marks is 174 MB, 331 bytes a minute, and without the
  # newest one nothing can be compared.
  versioning {
    enabled = true
  }

  dynamic "encryption" {
    for_each = var.encryption_key == null ? [] : [var.encryption_key]

    content {
      default_kms_key_name = encryption.value
    }
  }

  soft_delete_policy {
    retention_duration_seconds = 2592000
  }

  lifecycle {
    prevent_destroy = true
  }

  depends_on = [google_project_service.api, google_kms_crypto_key_iam_member.encrypts]
}

locals {
  # Every function reads the mark before it believes a row. The sweep writes it each minute; admin and the migration job
  # write it at a change of the database's identity.
  mark_readers = { for name in keys(local.functions) : name => local.members[name] if !local.functions[name].marks }
  mark_writers = merge({ for name, f in local.functions : name => local.members[name] if f.marks }, { migrate = local.members["migrate"] })

  mark_environment = { FENCEPOST_MARK_BUCKET = google_storage_bucket.mark.name }
}

# With uniform access a role is given on the bucket, which has nothing but the mark. To overwrite an object of a bucket
# with versions takes the permissions to create and to delete. objectUser has these, and none to change the bucket.
resource "google_storage_bucket_iam_member" "mark_writer" {
  for_each = local.mark_writers

  bucket = google_storage_bucket.mark.name
  role   = "roles/storage.objectUser"
  member = each.value
}

# objectViewer may list too: without that Cloud Storage answers 403 for an object that is not there, where 404 is wanted.
resource "google_storage_bucket_iam_member" "mark_reader" {
  for_each = local.mark_readers

  bucket = google_storage_bucket.mark.name
  role   = "roles/storage.objectViewer"
  member = each.value
}
