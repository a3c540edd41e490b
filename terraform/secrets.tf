# Secrets are made empty. Their values come from a person, by gcloud, and are never in a plan or in the state.

locals {
  # Which functions read a secret, and as which variable; the keys are mounted as a file.
  secrets = merge({
    rpc-urls = { variable = "FENCEPOST_RPC_URLS", readers = [for name, f in local.functions : name if f.nodes] }
    # Functions that make or check the MACs of intents.
    intent-mac-keys = { variable = "FENCEPOST_INTENTS_MAC_KEYS", readers = [for name, f in local.functions : name if f.accepts || f.signs] }
    }, contains(var.signers, "local") ? {
    signer-keys = { variable = null, readers = [for name, f in local.functions : name if f.signs] }
    } : {}, contains(var.signers, "remote") ? {
    # A function that registers must know the names.
    signer-remotes = { variable = null, readers = [for name, f in local.functions : name if f.signs || f.registers] }
    } : {}, var.more_chains ? {
    # A function that accepts intents must know the ids of the chains.
    chains = { variable = "FENCEPOST_CHAINS", readers = [for name, f in local.functions : name if f.nodes || f.accepts] }
    } : {}, length(var.handlers) == 0 ? {} : {
    handler-secrets = { variable = "FENCEPOST_HANDLERS_SECRETS", readers = [for name, f in local.functions : name if f.signs] }
    }, local.events_mode != "webhook" ? {} : {
    event-secrets = { variable = "FENCEPOST_EVENTS_WEBHOOK_SECRETS", readers = [for name, f in local.functions : name if f.publishes] }
    }, var.transfers == null ? {} : {
    trading-secret = { variable = "FENCEPOST_TRADING_SECRET", readers = [for name, f in local.functions : name if f.ledgers] }
  })

  secrets_of = {
    for name in keys(local.functions) : name => {
      for id, s in local.secrets : s.variable => {
        secret = google_secret_manager_secret.value[id].secret_id, version = try(data.google_secret_manager_secret_version.value[id].version, null)
      } if s.variable != null && contains(s.readers, name)
    }
  }

  # The files of the signers, and the variables that say where they are.
  signer_files = { signer-keys = "FENCEPOST_SIGNER_LOCAL_KEYS_FILE", signer-remotes = "FENCEPOST_SIGNER_REMOTES_FILE" }

  signer_files_of = {
    for name in keys(local.functions) : name => {
      for id, variable in local.signer_files : id => {
        secret = google_secret_manager_secret.value[id].secret_id, version = try(data.google_secret_manager_secret_version.value[id].version, null), variable = variable
      } if contains(try(local.secrets[id].readers, []), name)
    }
  }
}

resource "google_secret_manager_secret" "value" {
  for_each = local.secrets

  secret_id           = "${var.name}-${each.key}"
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

# A service whose secret has no value does not start, and its first start leaves it tainted behind its deletion protection. So
# a person names each version after giving the value, and it is looked up, without the value, before a service is made.
data "google_secret_manager_secret_version" "value" {
  for_each = var.image == null ? {} : local.secrets

  secret            = "${var.name}-${each.key}"
  version           = lookup(var.secret_versions, each.key, null)
  fetch_secret_data = false

  lifecycle {
    precondition {
      condition     = contains(keys(var.secret_versions), each.key)
      error_message = "secret_versions does not name ${each.key}, which functions read. Make the secret: terraform apply -target=google_secret_manager_secret.value. Give it a value: gcloud secrets versions add ${var.name}-${each.key} --data-file=-. Then set secret_versions = { ${each.key} = \"1\" }, with the number that gcloud shows, and apply again."
    }

    # Provider 8.0 returns true for every version, also for a disabled one. Of a destroyed one it returns the time.
    postcondition {
      condition     = self.enabled && (self.destroy_time == null || self.destroy_time == "")
      error_message = "Version ${self.version} of ${var.name}-${each.key} is disabled or destroyed, and no instance that reads it would start. Enable it: gcloud secrets versions enable ${self.version} --secret=${var.name}-${each.key}. If it is destroyed, add a version, name it in secret_versions, and apply again."
    }
  }
}

resource "google_secret_manager_secret_iam_member" "reader" {
  for_each = merge([
    for id, s in local.secrets : { for name in s.readers : "${id} ${name}" => { id = id, name = name } }
  ]...)

  secret_id = google_secret_manager_secret.value[each.value.id].id
  role      = "roles/secretmanager.secretAccessor"
  member    = local.members[each.value.name]
}
