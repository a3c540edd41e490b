# The service accounts, one for each function. Rights are granted here and in the modules, each on the single resource
# that it concerns, if Google has a policy there.

locals {
  # An account's address follows from its name, so that a plan can show its roles before the account exists.
  accounts = merge(
    { for name, account in google_service_account.function : name => "${account.account_id}@${var.project}.iam.gserviceaccount.com" },
    {
      tasks     = "${google_service_account.tasks.account_id}@${var.project}.iam.gserviceaccount.com"
      scheduler = "${google_service_account.scheduler.account_id}@${var.project}.iam.gserviceaccount.com"
      migrate   = "${google_service_account.migrate.account_id}@${var.project}.iam.gserviceaccount.com"
    },
  )
  members = { for name, email in local.accounts : name => "serviceAccount:${email}" }

  # One fixed audience for all internal functions: they take it beside their own URL, tasks and jobs bring it.
  internal_audience = "https://${var.name}-${var.environment}.internal.invalid"

  # The accounts that Cloud Run's check lets call a function. Public functions have none: each request through the load
  # balancer reaches the container, which verifies the caller's token.
  invokers = {
    for name, f in local.functions : name => f.public ? {} : merge(
      f.queue == null ? {} : { tasks = local.members["tasks"] },
      f.scheduled ? { scheduler = local.members["scheduler"] } : {},
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
  display_name = "The service account of tasks"

  depends_on = [google_project_service.api]
}

resource "google_service_account" "scheduler" {
  account_id   = "${var.name}-scheduler"
  display_name = "The service account of scheduled jobs"

  depends_on = [google_project_service.api]
}

resource "google_service_account" "migrate" {
  account_id   = "${var.name}-migrate"
  display_name = "Owns the tables, and migrates them"

  depends_on = [google_project_service.api]
}

# Only an account that may act as the tasks account can make a task that calls as it.
resource "google_service_account_iam_member" "acts_as_tasks" {
  for_each = { for name, f in local.functions : name => f if length(f.enqueues) > 0 }

  service_account_id = "projects/${var.project}/serviceAccounts/${local.accounts["tasks"]}"
  role               = "roles/iam.serviceAccountUser"
  member             = local.members[each.key]
}

locals {
  # These have no policy on the resource itself, so they are given on the project: the database's under the condition that
  # the instance is this one. Metrics and traces have no resource that a condition could name. Both database roles are needed to log in: one to find the instance
  # and get a certificate, one to get in as oneself.
  project_roles = merge(
    { for pair in setproduct(keys(local.functions), concat(
      ["roles/cloudsql.client", "roles/cloudsql.instanceUser"],
      var.collector_image == null ? [] : ["roles/monitoring.metricWriter", "roles/cloudtrace.agent"],
    )) : "${pair[0]} ${pair[1]}" => { role = pair[1], member = local.members[pair[0]] } },
    { for role in ["roles/cloudsql.client", "roles/cloudsql.instanceUser"] : "migrate ${role}" => {
      role = role, member = local.members["migrate"]
    } },
    { for pair in setproduct(var.readers, ["roles/cloudsql.client", "roles/cloudsql.instanceUser", "roles/cloudsql.studioUser"]) :
      join(" ", pair) => { role = pair[1], member = "user:${pair[0]}" }
    },
  )
}

resource "google_project_iam_member" "account" {
  for_each = local.project_roles

  project = var.project
  role    = each.value.role
  member  = each.value.member

  dynamic "condition" {
    for_each = contains(["roles/cloudsql.client", "roles/cloudsql.instanceUser"], each.value.role) ? [true] : []

    content {
      title       = "${var.name}-database"
      description = "Only Fencepost's instance"
      expression  = "resource.name == 'projects/${var.project}/instances/${module.database.instance}' && resource.service == 'sqladmin.googleapis.com'"
    }
  }
}
