output "keys" {
  description = "The first version of each key, by name."
  value       = { for name, key in google_kms_crypto_key.signer : name => "${key.id}/cryptoKeyVersions/1" }
}

output "grants" {
  description = "The role of each function on each key, by key and function."
  value       = { for name, g in local.grants : name => g.role }
}
