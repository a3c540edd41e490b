# Secrets are made empty. Their values come from a person, by gcloud, and are never in a plan or in the state.

locals {
  # Which functions read a secret, and as which variable; the keys are mounted as a file.
  secrets = merge({
    rpc-urls = { variable = "FENCEPOST_RPC_URLS", readers = keys(local.functions) }
    }, var.signer == "local" ? {
    signer-keys = { variable = null, readers = [for name, f in local.functions : name if f.signs] }
    } : {}, var.signer == "remote" ? {
    # Who registers must know the names.
    signer-remotes = { variable = null, readers = [for name, f in local.functions : name if f.signs || f.registers] }
    } : {}, var.more_chains ? {
    chains = { variable = "FENCEPOST_CHAINS", readers = keys(local.functions) }
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
        secret = google_secret_manager_secret.value[id].secret_id, version = lookup(var.secret_versions, id, "1")
      } if s.variable != null && contains(s.readers, name)
    }
  }

  # The file of the signer, and the variable that says where it is.
  signer_file = { local = "signer-keys", remote = "signer-remotes", kms = null }[var.signer]

  signer_secret_of = {
    for name in keys(local.functions) : name => try(contains(local.secrets[local.signer_file].readers, name), false) ? {
      secret   = google_secret_manager_secret.value[local.signer_file].secret_id, version = lookup(var.secret_versions, local.signer_file, "1")
      variable = { signer-keys = "FENCEPOST_SIGNER_LOCAL_KEYS_FILE", signer-remotes = "FENCEPOST_SIGNER_REMOTES_FILE" }[local.signer_file]
    } : null
  }
}

resource "google_secret_manager_secret" "value" {
  for_each = local.secrets

  secret_id           = "${var.name}-${each.key}"
  deletion_protection = var.deletion_protection

  replication {
    user_managed {
      replicas {
        location = var.region
      }
    }
  }

  depends_on = [google_project_service.api]
}

resource "google_secret_manager_secret_iam_member" "reader" {
  for_each = merge([
    for id, s in local.secrets : { for name in s.readers : "${id} ${name}" => { id = id, name = name } }
  ]...)

  secret_id = google_secret_manager_secret.value[each.value.id].id
  role      = "roles/secretmanager.secretAccessor"
  member    = local.members[each.value.name]
}
