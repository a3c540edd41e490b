# What Google would answer, for every file of tests.

mock_resource "google_kms_key_ring" {
  defaults = {
    id = "projects/project-1/locations/europe-west1/keyRings/fencepost-signers"
  }
}

mock_resource "google_kms_crypto_key" {
  defaults = {
    id = "projects/project-1/locations/europe-west1/keyRings/fencepost-signers/cryptoKeys/treasury"
  }
}

mock_data "google_project" {
  defaults = {
    number = "123456789012"
  }
}

mock_data "google_secret_manager_secret_version" {
  defaults = {
    enabled      = true
    destroy_time = ""
  }
}
