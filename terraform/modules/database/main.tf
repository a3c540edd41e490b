# The one authority: a Postgres with a standby in another zone, reached by private address and by IAM alone.

locals {
  region = coalesce(var.size.region, var.region)

  # An account's name in Postgres, which is shorter than its e-mail address.
  users    = { for name, email in var.accounts : name => trimsuffix(email, ".gserviceaccount.com") }
  migrator = trimsuffix(var.migrator_account, ".gserviceaccount.com")

  # Log logins and logouts, and changes of tables, functions and rights.
  flags = {
    "cloudsql.iam_authentication" = "on"
    max_connections               = tostring(var.size.max_connections)
    log_connections               = "on"
    log_disconnections            = "on"
    "cloudsql.enable_pgaudit"     = "on"
    "pgaudit.log"                 = var.size.pgaudit
  }
}

resource "google_sql_database_instance" "this" {
  name                = var.instance_name
  region              = local.region
  database_version    = var.size.version
  deletion_protection = var.deletion_protection
  encryption_key_name = var.encryption_key

  settings {
    tier                        = var.size.tier
    edition                     = "ENTERPRISE"
    availability_type           = var.size.regional ? "REGIONAL" : "ZONAL"
    disk_size                   = var.size.disk_gb
    disk_type                   = "PD_SSD"
    disk_autoresize             = true
    deletion_protection_enabled = var.deletion_protection
    connector_enforcement       = "REQUIRED"
    retain_backups_on_delete    = var.deletion_protection

    ip_configuration {
      ipv4_enabled    = false
      private_network = var.network
      ssl_mode        = "ENCRYPTED_ONLY"
    }

    backup_configuration {
      enabled                        = true
      start_time                     = "02:00"
      point_in_time_recovery_enabled = true
      transaction_log_retention_days = var.size.log_retention_days

      backup_retention_settings {
        retained_backups = var.size.backups
      }
    }

    insights_config {
      query_insights_enabled = true
    }

    maintenance_window {
      day          = 7
      hour         = 3
      update_track = "stable"
    }

    dynamic "database_flags" {
      for_each = local.flags

      content {
        name  = database_flags.key
        value = database_flags.value
      }
    }
  }

  lifecycle {
    # Cloud SQL enlarges the disk; a plan must not shrink it by replacing the database.
    ignore_changes = [settings[0].disk_size]

    precondition {
      condition     = var.connections <= var.size.max_connections - var.size.connections_reserved
      error_message = "All functions at their max_instances, each with database.pool connections, open ${var.connections}; the server takes ${var.size.max_connections} less ${var.size.connections_reserved} reserved. Lower max_instances or raise database.max_connections."
    }
  }
}

# A copy in another region, for the loss of this one. It lacks the last commits, and serves no reads before its promotion.
resource "google_sql_database_instance" "replica" {
  count = var.size.replica_region == null ? 0 : 1

  name                 = "${var.instance_name}-replica"
  region               = var.size.replica_region
  database_version     = var.size.version
  master_instance_name = google_sql_database_instance.this.name
  deletion_protection  = var.deletion_protection
  encryption_key_name  = var.size.replica_key

  settings {
    tier                        = var.size.tier
    edition                     = "ENTERPRISE"
    availability_type           = "ZONAL"
    disk_size                   = var.size.disk_gb
    disk_type                   = "PD_SSD"
    disk_autoresize             = true
    deletion_protection_enabled = var.deletion_protection
    connector_enforcement       = "REQUIRED"

    ip_configuration {
      ipv4_enabled    = false
      private_network = var.network
      ssl_mode        = "ENCRYPTED_ONLY"
    }

    dynamic "database_flags" {
      for_each = local.flags

      content {
        name  = database_flags.key
        value = database_flags.value
      }
    }
  }

  lifecycle {
    ignore_changes = [settings[0].disk_size]

    precondition {
      condition     = var.size.replica_region != local.region
      error_message = "database.replica_region is the region of the database itself: name another one."
    }

    precondition {
      condition     = (var.encryption_key == null) == (var.size.replica_key == null)
      error_message = "With encryption_key a replica needs database.replica_key, a Cloud KMS key in database.replica_region; without it, none."
    }
  }
}

resource "google_sql_database" "this" {
  name     = "fencepost"
  instance = google_sql_database_instance.this.name

  # The users' tables go with it, and users that own or may read some cannot be deleted.
  deletion_policy = "ABANDON"
}

# The functions read and write rows; the migration grants them that, and nothing grants them more.
resource "google_sql_user" "function" {
  for_each = local.users

  name            = each.value
  instance        = google_sql_database_instance.this.name
  type            = "CLOUD_IAM_SERVICE_ACCOUNT"
  deletion_policy = "ABANDON"
}

# People read, as themselves; the migration grants them that.
resource "google_sql_user" "reader" {
  for_each = var.readers

  name            = each.value
  instance        = google_sql_database_instance.this.name
  type            = "CLOUD_IAM_USER"
  deletion_policy = "ABANDON"
}

# The migration makes the tables and owns them.
resource "google_sql_user" "migrator" {
  name            = local.migrator
  instance        = google_sql_database_instance.this.name
  type            = "CLOUD_IAM_SERVICE_ACCOUNT"
  database_roles  = ["cloudsqlsuperuser"]
  deletion_policy = "ABANDON"
}
