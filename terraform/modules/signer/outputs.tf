output "place" {
  description = "The location and the key ring of the keys; null: there are none."
  value       = one([for r in google_kms_key_ring.this : "${r.location}/${r.name}"])
}

output "keys" {
  description = "The first version of each key, by name."
  value       = { for name, key in google_kms_crypto_key.signer : name => "${key.id}/cryptoKeyVersions/1" }
}

output "grants" {
  description = "The role of each function on each key, by key and function."
  value       = { for name, g in local.grants : name => g.role }
}
