# Brings the schema up to date, as the owner of the tables. A person or a pipeline runs it before a release.

resource "google_cloud_run_v2_job" "this" {
  name                = var.name
  location            = var.region
  deletion_protection = false # it holds nothing

  dynamic "binary_authorization" {
    for_each = var.attested ? [true] : []

    content {
      use_default = true
    }
  }

  template {
    template {
      service_account = var.account
      timeout         = "3600s"
      max_retries     = 0

      vpc_access {
        egress = "ALL_TRAFFIC"

        network_interfaces {
          network    = var.network
          subnetwork = var.subnet
        }
      }

      containers {
        image   = var.image
        command = ["/migrate"]
        args    = ["up", "--grant-to", join(",", [for function, role in var.database_roles : "${function}=${role}"]), "--grant-read-to", join(",", sort(var.readers))]

        env {
          name  = "FENCEPOST_DATABASE_URL"
          value = var.database_url
        }

        env {
          name  = "FENCEPOST_DATABASE_INSTANCE"
          value = var.instance
        }

        dynamic "env" {
          for_each = var.environment

          content {
            name  = env.key
            value = env.value
          }
        }

        resources {
          limits = { cpu = "1", memory = "512Mi" }
        }
      }
    }
  }
}
