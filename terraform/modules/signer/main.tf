# Keys that never leave the HSM. Submitters are data: a new one needs a key here only if it signs by a key of its own.

resource "google_kms_key_ring" "this" {
  count = length(var.keys) > 0 ? 1 : 0

  name     = "${var.name}-signers"
  location = var.region
}

resource "google_kms_crypto_key" "signer" {
  for_each = var.keys

  name     = each.key
  key_ring = google_kms_key_ring.this[0].id
  purpose  = "ASYMMETRIC_SIGN"

  # The longest there is: a destroyed key is an account that nobody can spend from.
  destroy_scheduled_duration = "10368000s"

  version_template {
    algorithm        = "EC_SIGN_SECP256K1_SHA256"
    protection_level = "HSM"
  }

  lifecycle {
    prevent_destroy = true
  }
}

locals {
  # The signature, and the public key that its account's address is checked against; nothing that changes a key.
  grants = { for triple in setproduct(var.keys, keys(var.signers), ["roles/cloudkms.signer", "roles/cloudkms.publicKeyViewer"]) :
    join(" ", triple) => { key = triple[0], member = var.signers[triple[1]], role = triple[2] }
  }
}

resource "google_kms_crypto_key_iam_member" "signer" {
  for_each = local.grants

  crypto_key_id = google_kms_crypto_key.signer[each.value.key].id
  role          = each.value.role
  member        = each.value.member
}
