# One function as one Cloud Run service.

locals {
  collected = var.collector_image != null
}

resource "google_cloud_run_v2_service" "this" {
  name                = var.name
  location            = var.region
  deletion_protection = var.deletion_protection

  # Public functions are reached through the load balancer and in no other way: they have no address of their own, and
  # only the load balancer is let in. Admin with a console is the exception: its own address is open inside the
  # network. Cloud Run's own check of callers is off for them, since callers bring tokens of other issuers and
  # audiences, which the function verifies. Internal ones accept requests of this project's Cloud Tasks and Scheduler,
  # with a token of an account that may invoke them. The function verifies that token again, with its signature, also
  # where Cloud Run's check is off.
  ingress              = var.public ? "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER" : "INGRESS_TRAFFIC_INTERNAL_ONLY"
  default_uri_disabled = var.public && !var.called_inside
  invoker_iam_disabled = var.public && !var.behind_iap || var.unchecked
  custom_audiences     = var.public ? [] : [var.audience]

  dynamic "binary_authorization" {
    for_each = var.attested ? [true] : []

    content {
      use_default = true
    }
  }

  # Bounds all revisions together: while one takes over from another, both hold connections.
  scaling {
    max_instance_count = var.max_instances
  }

  template {
    service_account                  = var.account
    timeout                          = "${var.timeout}s"
    execution_environment            = "EXECUTION_ENVIRONMENT_GEN2"
    max_instance_request_concurrency = var.concurrency

    scaling {
      min_instance_count = var.min_instances
      max_instance_count = var.max_instances
    }

    vpc_access {
      egress = "ALL_TRAFFIC"

      network_interfaces {
        network    = var.network
        subnetwork = var.subnet
      }
    }

    containers {
      name  = "function"
      image = var.image

      depends_on = local.collected ? ["collector"] : []

      ports {
        container_port = 8080
      }

      resources {
        limits            = { cpu = var.cpu, memory = var.memory }
        cpu_idle          = true
        startup_cpu_boost = true
      }

      env {
        name  = "FUNCTION_TARGET"
        value = var.target
      }

      dynamic "env" {
        for_each = merge(var.environment, { for name, file in var.signer_files : file.variable => "/secrets/${name}/file" })

        content {
          name  = env.key
          value = env.value
        }
      }

      dynamic "env" {
        for_each = var.secrets

        content {
          name = env.key

          value_source {
            secret_key_ref {
              secret  = env.value.secret
              version = env.value.version
            }
          }
        }
      }

      dynamic "volume_mounts" {
        for_each = var.signer_files

        content {
          name       = volume_mounts.key
          mount_path = "/secrets/${volume_mounts.key}"
        }
      }

      # An instance gets no requests before it has reached the database, which takes up to a minute where its network is
      # new. After 45 s the path answers 200 all the same: an instance without a database answers 503 and is not replaced by
      # another without one.
      startup_probe {
        period_seconds    = 1
        timeout_seconds   = 1
        failure_threshold = 60

        http_get {
          path = "/startupz"
        }
      }
    }

    dynamic "containers" {
      for_each = local.collected ? [true] : []

      content {
        name  = "collector"
        image = var.collector_image
        args  = ["--config=env:COLLECTOR_CONFIG"]

        resources {
          limits   = { cpu = "1", memory = "512Mi" }
          cpu_idle = true
        }

        env {
          name  = "COLLECTOR_CONFIG"
          value = file("${path.module}/collector.yaml")
        }

        startup_probe {
          period_seconds    = 1
          failure_threshold = 30

          http_get {
            path = "/"
            port = 13133
          }
        }
      }
    }

    dynamic "volumes" {
      for_each = var.signer_files

      content {
        name = volumes.key

        secret {
          secret = volumes.value.secret
          # 0444: the file is root's, and the function is not root. Whatever runs in its container may read it; the
          # collector's does not mount it.
          default_mode = 292

          items {
            path    = "file"
            version = volumes.value.version
          }
        }
      }
    }
  }
}

resource "google_cloud_run_v2_service_iam_member" "invoker" {
  for_each = var.invokers

  name     = google_cloud_run_v2_service.this.name
  location = google_cloud_run_v2_service.this.location
  role     = "roles/run.invoker"
  member   = each.value
}
