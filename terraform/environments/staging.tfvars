# As prod, smaller.
environment  = "staging"
queue_shards = 3

database = {
  tier            = "db-custom-2-7680"
  max_connections = 400
}
