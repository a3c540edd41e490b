# For trying things out: no standby, few instances, and services and the database can be destroyed.
environment         = "dev"
deletion_protection = false

default_max_instances = 4
min_instances         = {} # nobody waits: nothing is billed while idle

max_instances = {
  cancel        = 2
  receipt       = 2
  confirm       = 2
  resubmit      = 2
  transfer-step = 2
}

database = {
  tier               = "db-custom-1-3840"
  regional           = false
  disk_gb            = 10
  max_connections    = 200
  log_retention_days = 1
  backups            = 3
}
