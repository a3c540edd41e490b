# The environment of each function. docs/settings.md describes the variables.

locals {
  environment = merge(local.mark_environment, {
    FENCEPOST_CHAIN_ID              = tostring(var.chain_id)
    FENCEPOST_DATABASE_INSTANCE     = module.database.connection_name
    FENCEPOST_DATABASE_MAX_CONNS    = tostring(var.database.pool)
    FENCEPOST_TASKS_PROJECT         = var.project
    FENCEPOST_TASKS_LOCATION        = var.region
    FENCEPOST_TASKS_QUEUE_PREFIX    = local.queue_prefix
    FENCEPOST_TASKS_QUEUE_SHARDS    = tostring(var.queue_shards)
    FENCEPOST_TASKS_SERVICE_ACCOUNT = local.accounts["tasks"]
    # The queue replaces this host by its function's. So no function can make Cloud Tasks send a task, with the tasks
    # account's token, to another host.
    FENCEPOST_TASKS_TARGET_URL       = "https://replaced-by-the-queue.invalid"
    FENCEPOST_OIDC_ISSUER            = var.oidc.issuer
    FENCEPOST_OIDC_JWKS_URL          = var.oidc.jwks_url
    FENCEPOST_AUTH_OPEN_ISSUER       = tostring(coalesce(var.oidc.open, true))
    FENCEPOST_AUTH_PUBLIC_AUDIENCE   = "https://${var.domain}"
    FENCEPOST_AUTH_INTERNAL_AUDIENCE = local.internal_audience
    }, local.viewers_environment, length(var.operators) == 0 ? {} : {
    FENCEPOST_AUTH_OPERATORS = join(",", sort(var.operators))
    }, length(var.deposit_service) == 0 ? {} : {
    FENCEPOST_AUTH_DEPOSIT_SERVICE = join(",", sort(var.deposit_service))
    }, length(var.approvals.required) == 0 ? {} : {
    FENCEPOST_APPROVALS_REQUIRED = join(",", sort(var.approvals.required))
    }, length(var.handlers) == 0 ? {} : {
    FENCEPOST_HANDLERS_URLS = join(",", [for name in sort(keys(var.handlers)) : "${name}=${var.handlers[name]}"])
    }, var.events == null ? {} : {
    FENCEPOST_EVENTS_MODE = local.events_mode
    }, local.events_mode != "mq_outbox" ? {} : {
    FENCEPOST_EVENTS_PUBSUB_TOPIC = google_pubsub_topic.events.id
    }, local.events_mode != "webhook" ? {} : {
    FENCEPOST_EVENTS_WEBHOOK_URLS = join(",", [for name in sort(keys(var.events.endpoints)) : "${name}=${var.events.endpoints[name]}"])
    }, var.collector_image == null ? {} : {
    FENCEPOST_TELEMETRY_OTLP_ENDPOINT = "localhost:4317"
  })

  own_environment = {
    for name, f in local.functions : name => merge({
      # No password is in it: the account's own token is one.
      # The server ends a transaction whose client was frozen inside it, so that the rows that it locked are free again:
      # each function has a separate role, and none may end another's connections.
      FENCEPOST_DATABASE_URL = join(" ", [
        "user=${module.database.users[name]}", "dbname=${module.database.database}", "sslmode=disable",
        "transaction_timeout=${f.transaction_timeout}",
      ])
      # The callers of its internal paths. The function checks them again, after Cloud Run.
      FENCEPOST_AUTH_INTERNAL_ACCOUNTS = f.scheduled ? local.accounts["scheduler"] : local.accounts["tasks"]
      CLOUD_RUN_TIMEOUT_SECONDS        = tostring(f.timeout)
      }, name == "admin" ? local.sign_in_environment : {}, !f.ledgers ? {} : {
      FENCEPOST_TRADING_URL         = var.transfers.trading_url
      FENCEPOST_AUTH_USERS_ISSUER   = var.transfers.users_issuer
      FENCEPOST_AUTH_USERS_JWKS_URL = var.transfers.users_jwks_url
      FENCEPOST_AUTH_USERS_AUDIENCE = var.transfers.users_audience
      }, !f.publishes || length(try(var.events.callers, {})) == 0 ? {} : {
      FENCEPOST_EVENTS_WEBHOOK_CALLERS = join(",", flatten([for name in sort(keys(var.events.callers)) : [for caller in sort(var.events.callers[name]) : "${name}=${caller}"]]))
    })
  }
}
