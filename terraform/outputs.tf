output "address" {
  description = "The address for the domain's A record."
  value       = one(module.balancer[*].address)
}

output "api" {
  description = "The base URL of the public API. It is also the audience of callers' tokens, unless settings names another one."
  value       = "https://${var.domain}"
}

output "repository" {
  description = "The repository to which the image is pushed."
  value       = "${var.region}-docker.pkg.dev/${var.project}/${google_artifact_registry_repository.images.repository_id}"
}

output "secrets" {
  description = "The secrets that need a value."
  value       = sort(concat([for s in google_secret_manager_secret.value : s.secret_id], [for s in google_secret_manager_secret.console : s.secret_id]))
}

output "migration_job" {
  description = "The job that brings the schema up to date."
  value       = one(module.migration[*].name)
}

output "database_instance" {
  description = "The database's connection name."
  value       = module.database.connection_name
}

output "signing_keys" {
  description = "The first version of each signing key, by name."
  value       = module.signer.keys
}

output "events_topic" {
  description = "The topic of the events."
  value       = google_pubsub_topic.events.id
}

output "public_routes" {
  description = "The public paths in the order of their rules, and the function of each."
  value       = try(module.balancer[0].routes, [])
}

output "queues" {
  description = "The names of the queues, by kind of work."
  value       = { for kind, q in module.queue : kind => q.names }
}

output "runbooks" {
  description = "The runbooks that the alerts link."
  value       = [for page in try(module.alerts[0].pages, []) : "${var.runbooks_url}/${page}.md"]
}

output "connections" {
  description = "The maximum of connections that all functions open, and the number that the database has for them."
  value       = { most = local.connections, room = var.database.max_connections - var.database.connections_reserved }
}

output "egress_addresses" {
  description = "The static addresses from which requests to nodes, handlers, endpoints and signing services come."
  value       = module.network.addresses
}

output "deployment" {
  description = "The resources that scripts/cloud-check reads."
  value = {
    project       = var.project
    region        = var.region
    environment   = var.environment
    instance      = module.database.instance
    migration_job = "${var.name}-migrate"
    metrics       = var.collector_image != null
    audience      = lookup(var.settings, "FENCEPOST_AUTH_PUBLIC_AUDIENCE", local.environment.FENCEPOST_AUTH_PUBLIC_AUDIENCE)
    armor_preview = var.armor_preview
    mark_bucket   = google_storage_bucket.mark.name
    logged_share  = one(module.balancer[*].logged_share)
    services      = { for name, f in local.deployed : name => { name = "${var.name}-${name}", public = f.public, scheduled = f.scheduled } }
  }
}
