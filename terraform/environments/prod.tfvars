environment = "prod"

# So many that the queues carry what the database does: docs/costs.md, "Limits of a deployment".
queue_shards = 10

# Ten shards of advance, receipt and confirm send 1,000 tasks of each at once, those of publish 500.
max_instances = {
  create   = 20
  advance  = 20
  receipt  = 13
  confirm  = 13
  publish  = 7
  transfer = 20
}

# No cold start for a caller, nor on the way of an intent.
min_instances = { create = 1, query = 1, cancel = 1, transfer = 1, advance = 1 }

database = {
  tier            = "db-custom-8-32768"
  disk_gb         = 100
  max_connections = 800
}

# Everybody gets tokens of Google's issuer, so that each caller must be named. With an issuer of your own, whose tokens
# your organization's accounts alone get: issuer, jwks_url and open = false.
oidc = { open = true }

# The keys are in the HSM.
signers = ["kms"]

# What one operator wants done, another approves: name at least two people in operators.
approvals = { required = ["policy", "callers", "signer", "register", "release", "accept", "adjustments", "webhooks"] }

# To keep audit logs where the project's owner cannot delete them either. It cannot be taken back, so it is off until you
# want it:
# audit_lock_days = 400
