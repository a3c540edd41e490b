# As prod, smaller.
environment = "staging"

database = {
  tier            = "db-custom-2-7680"
  max_connections = 400
}
