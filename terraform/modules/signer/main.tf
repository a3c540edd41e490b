# Keys that never leave the HSM. Submitters are data: a new one needs a key here only if no other account has its key.

resource "google_kms_key_ring" "this" {
  count = length(var.keys) > 0 ? 1 : 0

  name     = var.ring
  location = var.location
}

resource "google_kms_crypto_key" "signer" {
  for_each = var.keys

  name     = each.key
  key_ring = google_kms_key_ring.this[0].id
  purpose  = "ASYMMETRIC_SIGN"

  # The longest time that Cloud KMS offers: without its key an account's money is lost.
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
  # A function that signs may only sign: the account is recovered from each signature. A function that registers may read
  # the public key, with which the account is compared. No function may change a key.
  grants = merge(
    { for pair in setproduct(var.keys, keys(var.signers)) :
      join(" ", pair) => { key = pair[0], member = var.signers[pair[1]], role = "roles/cloudkms.signer" }
    },
    { for pair in setproduct(var.keys, keys(var.readers)) :
      join(" ", pair) => { key = pair[0], member = var.readers[pair[1]], role = "roles/cloudkms.publicKeyViewer" }
    },
  )
}

resource "google_kms_crypto_key_iam_member" "signer" {
  for_each = local.grants

  crypto_key_id = google_kms_crypto_key.signer[each.value.key].id
  role          = each.value.role
  member        = each.value.member
}
