environment  = "prod"
queue_shards = 4

# Four shards of advance send 400 tasks at once.
max_instances = {
  create   = 20
  advance  = 20
  transfer = 20
}

# The way of an intent without a cold start.
min_instances = {
  create  = 1
  advance = 1
}

database = {
  tier            = "db-custom-8-32768"
  disk_gb         = 100
  max_connections = 800
}

# What it would refuse in staging has been looked at: see docs/deploy.md.
armor_preview = false
