output "connection_name" {
  value = google_sql_database_instance.this.connection_name
}

output "instance" {
  value = google_sql_database_instance.this.name
}

output "replica" {
  description = "The replica in another region; null: none."
  value       = one(google_sql_database_instance.replica[*].name)
}

output "database" {
  value = google_sql_database.this.name
}

output "users" {
  description = "The functions' names in Postgres, by function."
  value       = { for name, user in google_sql_user.function : name => user.name }
}

output "readers" {
  description = "The readers' names in Postgres."
  value       = [for user in google_sql_user.reader : user.name]
}

output "migrator_url" {
  description = "How the migration logs in, in the form user=… dbname=…"
  value       = "user=${google_sql_user.migrator.name} dbname=${google_sql_database.this.name} sslmode=disable"
}

output "encryption_key" {
  description = "The key that encrypts the disk; null: Google's."
  value       = google_sql_database_instance.this.encryption_key_name
}
