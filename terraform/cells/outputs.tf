output "address" {
  description = "The address for the domain's A record."
  value       = google_compute_global_address.this.address
}

output "client_list" {
  description = "The list of cells for the Go client, as JSON: terraform output -raw client_list > cells.json."
  value = jsonencode({ for cell, c in var.cells : cell => {
    url      = "https://${var.domain}/cells/${cell}"
    accounts = sort(keys(c.accounts))
  } })
}

output "routes" {
  description = "The public paths in the order of their rules, what a function gets, and the backend of each."
  value       = [for r in local.rules : { match = r.match, path = r.path, backend = r.backend }]
}

output "signers" {
  description = "The only member that may sign with each key, by the key's full name."
  value       = local.signers
}
