# Who is who. Each function is an account of its own; what an account may do is given here and in the modules, each
# grant on the one resource that it is about where Google has a policy there.

locals {
  # One fixed audience for all internal functions: they take it beside their own URL, tasks and jobs bring it.
  internal_audience = "https://${var.name}-${var.environment}.internal.invalid"

  # Who may call a function past Cloud Run's own check. Public functions have none: whoever comes through the load
  # balancer is let in to the container, which verifies the caller's own token itself.
  invokers = {
    for name, f in local.functions : name => f.public ? {} : merge(
      f.queue == null ? {} : { tasks = google_service_account.tasks.member },
      f.scheduled ? { scheduler = google_service_account.scheduler.member } : {},
    )
  }
}

resource "google_service_account" "function" {
  for_each = local.functions

  account_id   = "${var.name}-${each.key}"
  display_name = "Fencepost's function ${each.key}"

  depends_on = [google_project_service.api]
}

resource "google_service_account" "tasks" {
  account_id   = "${var.name}-tasks"
  display_name = "Whom tasks call as"

  depends_on = [google_project_service.api]
}

resource "google_service_account" "scheduler" {
  account_id   = "${var.name}-scheduler"
  display_name = "Whom scheduled jobs call as"

  depends_on = [google_project_service.api]
}

resource "google_service_account" "migrate" {
  account_id   = "${var.name}-migrate"
  display_name = "Owns the tables, and migrates them"

  depends_on = [google_project_service.api]
}

# A task that calls as the tasks account can be made only by who may act as it.
resource "google_service_account_iam_member" "acts_as_tasks" {
  for_each = { for name, f in local.functions : name => f if length(f.enqueues) > 0 }

  service_account_id = google_service_account.tasks.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.function[each.key].member
}

locals {
  # These have no policy on the resource itself. Both database roles are needed to log in: one to find the instance
  # and get a certificate, one to get in as oneself.
  project_roles = merge(
    { for pair in setproduct(keys(local.functions), concat(
      ["roles/cloudsql.client", "roles/cloudsql.instanceUser"],
      var.collector_image == null ? [] : ["roles/monitoring.metricWriter", "roles/cloudtrace.agent"],
    )) : "${pair[0]} ${pair[1]}" => { role = pair[1], member = google_service_account.function[pair[0]].member } },
    { for role in ["roles/cloudsql.client", "roles/cloudsql.instanceUser"] : "migrate ${role}" => {
      role = role, member = google_service_account.migrate.member
    } },
  )
}

resource "google_project_iam_member" "account" {
  for_each = local.project_roles

  project = var.project
  role    = each.value.role
  member  = each.value.member
}
