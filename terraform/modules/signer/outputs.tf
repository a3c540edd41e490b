output "keys" {
  description = "The first version of each key, by name."
  value       = { for name, key in google_kms_crypto_key.signer : name => "${key.id}/cryptoKeyVersions/1" }
}
