# Cloud Run starts only images that were attested. The collector is Google's, and is named by its digest.

resource "google_binary_authorization_policy" "this" {
  count = var.binary_authorization == null ? 0 : 1

  global_policy_evaluation_mode = "ENABLE"

  default_admission_rule {
    evaluation_mode         = "REQUIRE_ATTESTATION"
    enforcement_mode        = "ENFORCED_BLOCK_AND_AUDIT_LOG"
    require_attestations_by = var.binary_authorization.attestors
  }

  dynamic "admission_whitelist_patterns" {
    for_each = var.collector_image == null ? [] : [var.collector_image]

    content {
      name_pattern = admission_whitelist_patterns.value
    }
  }

  depends_on = [google_project_service.api]
}
