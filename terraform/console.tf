# The operators' console, if var.console asks for it: behind Identity-Aware Proxy, for the members listed. Its account
# has no database role and reads one secret. It calls admin, where the token of the person decides, and nothing else.

variable "console" {
  description = "The operators' console at https://DOMAIN/console/. iap.members: who gets past Identity-Aware Proxy, each user: or group: and an address. operators and viewers list who may act there, and who may only read. trace_url and log_url lead from a transaction to its trace and its log, with {traceId} and {txId}. Null: no console."
  type = object({
    iap       = object({ members = set(string) })
    trace_url = optional(string)
    log_url   = optional(string)
  })
  default = null

  validation {
    condition     = alltrue([for id, url in { traceId = try(var.console.trace_url, null), txId = try(var.console.log_url, null) } : url == null ? true : can(regex("^https://[^\\s{}/]+/[^\\s{}]*\\{${id}\\}[^\\s{}]*$", url))])
    error_message = "console.trace_url must be an https URL with {traceId} once, and console.log_url one with {txId} once, after the host."
  }

  validation {
    condition     = var.console == null ? true : length(var.console.iap.members) > 0 && alltrue([for m in var.console.iap.members : can(regex("^(user|group):[^\\s@,:]+@[^\\s@,:]+$", m))])
    error_message = "console.iap.members must name at least one person or group, each as user:<e-mail address> or group:<e-mail address>."
  }
}

variable "viewers" {
  description = "The people who may read what admin functions show and change nothing, in the form of operators."
  type        = set(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for v in var.viewers : can(regex("^(email:[^\\s@,]+@[^\\s@,]+|sub:[^\\s,]+|[^\\s@,:]+@[^\\s@,]+)$", v))]) && length(setintersection(var.viewers, var.operators)) == 0
    error_message = "each of viewers must be email:<e-mail address> or sub:<subject>, and no operator."
  }
}

locals {
  consoles = var.console != null && var.image != null ? { console = var.console } : {}

  # Cloud Run's address of admin follows from its name. Inside the network it leads to Google's own addresses.
  admin_host = "${var.name}-admin-${data.google_project.this.number}.${var.region}.run.app"

  # The settings by which the console and admin verify the person who signed in. The audience is the console's backend service,
  # which no other backend's tokens have.
  sign_in_environment = merge([for b in values(google_compute_backend_service.console) : {
    FENCEPOST_CONSOLE_MODE     = "iap"
    FENCEPOST_CONSOLE_AUDIENCE = "/projects/${data.google_project.this.number}/global/backendServices/${b.generated_id}"
  }]...)

  viewers_environment = length(var.viewers) == 0 ? {} : { FENCEPOST_AUTH_VIEWERS = join(",", sort(var.viewers)) }

  console_environment = merge(local.sign_in_environment, local.viewers_environment, {
    FENCEPOST_CONSOLE_ADMIN_URL = "https://${local.admin_host}"
    FENCEPOST_CONSOLE_HOSTS     = var.domain
    FENCEPOST_OIDC_ISSUER       = var.oidc.issuer
    FENCEPOST_TASKS_PROJECT     = var.project
    CLOUD_RUN_TIMEOUT_SECONDS   = "60"
    }, { for name, url in {
      FENCEPOST_CONSOLE_TRACE_URL = try(var.console.trace_url, null)
      FENCEPOST_CONSOLE_LOG_URL   = try(var.console.log_url, null)
    } : name => url if url != null }, length(var.operators) == 0 ? {} : {
    FENCEPOST_AUTH_OPERATORS = join(",", sort(var.operators))
    }, var.collector_image == null ? {} : {
    FENCEPOST_TELEMETRY_OTLP_ENDPOINT = "localhost:4317"
  })

  console_account = "${var.name}-console@${var.project}.iam.gserviceaccount.com"
}

resource "google_project_service" "iap" {
  for_each = local.consoles

  service            = "iap.googleapis.com"
  disable_on_destroy = false
}

resource "google_service_account" "console" {
  for_each = local.consoles

  account_id   = "${var.name}-console"
  display_name = "Fencepost's console"

  depends_on = [google_project_service.api]
}

# The keys of the console's cookies and forms: the base64 of 32 random bytes. The value comes from a person, as of every
# secret.
resource "google_secret_manager_secret" "console" {
  for_each = var.console == null ? {} : { console = true }

  secret_id           = "${var.name}-console-session-keys"
  deletion_protection = var.deletion_protection

  replication {
    user_managed {
      dynamic "replicas" {
        for_each = setunion([var.region], var.secret_regions)

        content {
          location = replicas.value

          dynamic "customer_managed_encryption" {
            for_each = var.encryption_key == null ? [] : [var.encryption_key]

            content {
              kms_key_name = customer_managed_encryption.value
            }
          }
        }
      }
    }
  }

  depends_on = [google_project_service.api, google_kms_crypto_key_iam_member.encrypts]
}

data "google_secret_manager_secret_version" "console" {
  for_each = local.consoles

  secret            = "${var.name}-console-session-keys"
  version           = lookup(var.secret_versions, "console-session-keys", null)
  fetch_secret_data = false

  lifecycle {
    precondition {
      condition     = contains(keys(var.secret_versions), "console-session-keys")
      error_message = "secret_versions does not name console-session-keys, which the console reads. Make the secret: terraform apply -target=google_secret_manager_secret.console. Give it a value: head -c 32 /dev/urandom | base64 | tr -d '\\n' | gcloud secrets versions add ${var.name}-console-session-keys --data-file=-. Then add console-session-keys = \"1\" to secret_versions, and apply again."
    }
  }
}

resource "google_secret_manager_secret_iam_member" "console" {
  for_each = local.consoles

  secret_id = google_secret_manager_secret.console[each.key].id
  role      = "roles/secretmanager.secretAccessor"
  member    = "serviceAccount:${local.console_account}"
}

resource "google_project_iam_member" "console" {
  for_each = toset(length(local.consoles) == 0 || var.collector_image == null ? [] : ["roles/monitoring.metricWriter", "roles/cloudtrace.agent"])

  project = var.project
  role    = each.key
  member  = "serviceAccount:${local.console_account}"
}

module "console" {
  source   = "./modules/function"
  for_each = local.consoles

  name          = "${var.name}-console"
  region        = var.region
  target        = "console"
  public        = true
  behind_iap    = true
  unchecked     = false
  image         = var.image
  account       = local.console_account
  network       = module.network.network
  subnet        = module.network.subnets["functions"]
  timeout       = 60
  concurrency   = var.concurrency
  min_instances = 0
  max_instances = 2
  environment   = local.console_environment
  secrets = {
    FENCEPOST_CONSOLE_SESSION_KEYS = {
      secret = google_secret_manager_secret.console[each.key].secret_id, version = try(data.google_secret_manager_secret_version.console[each.key].version, null)
    }
  }
  signer_files = {}
  audience     = local.internal_audience
  # The proxy alone: Cloud Run refuses every other request before the console sees it.
  invokers            = { iap = "serviceAccount:service-${data.google_project.this.number}@gcp-sa-iap.iam.gserviceaccount.com" }
  collector_image     = var.collector_image
  attested            = var.binary_authorization != null
  deletion_protection = var.deletion_protection

  depends_on = [google_service_account.console, google_secret_manager_secret_iam_member.console, google_project_service.iap, google_binary_authorization_policy.this]
}

# Names the console's account as a caller of admin. It protects nothing today: Cloud Run's check of callers is off for
# admin, as for every public function. The protection is the person's token, which admin verifies at each call.
resource "google_cloud_run_v2_service_iam_member" "console_calls_admin" {
  for_each = local.consoles

  name     = module.function["admin"].name
  location = var.region
  role     = "roles/run.invoker"
  member   = "serviceAccount:${local.console_account}"
}

resource "google_compute_region_network_endpoint_group" "console" {
  for_each = local.consoles

  name                  = "${var.name}-console"
  region                = var.region
  network_endpoint_type = "SERVERLESS"

  cloud_run {
    service = "${var.name}-console" # by name: the service's settings have the id of this group's backend service
  }
}

resource "google_compute_backend_service" "console" {
  for_each = local.consoles

  name                  = "${var.name}-console"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  protocol              = "HTTPS"
  security_policy       = module.balancer[0].public_policy

  backend {
    group = google_compute_region_network_endpoint_group.console[each.key].id
  }

  iap {
    enabled = true
  }

  log_config {
    enable      = true
    sample_rate = 1
  }

  depends_on = [google_project_service.iap]
}

resource "google_iap_web_backend_service_iam_member" "console" {
  for_each = toset(flatten([for c in values(local.consoles) : tolist(c.iap.members)]))

  web_backend_service = google_compute_backend_service.console["console"].name
  role                = "roles/iap.httpsResourceAccessor"
  member              = each.key
}

# Beside the load balancer, admin has this address inside the network. It is made for the console, but everything in the
# network reaches it, without Cloud Armor: admin_ranges and the limits on floods do not apply there. Admin verifies the
# person's token at each call, here as there.
resource "google_dns_managed_zone" "admin" {
  for_each = local.consoles

  name       = "${var.name}-admin"
  dns_name   = "${local.admin_host}."
  visibility = "private"

  private_visibility_config {
    networks {
      network_url = module.network.network
    }
  }
}

resource "google_dns_record_set" "admin" {
  for_each = local.consoles

  managed_zone = google_dns_managed_zone.admin[each.key].name
  name         = "${local.admin_host}."
  type         = "A"
  ttl          = 300
  rrdatas      = ["199.36.153.8", "199.36.153.9", "199.36.153.10", "199.36.153.11"] # private.googleapis.com
}
