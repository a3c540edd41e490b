# Cloud Armor, in front of everything public. Limits here are against floods; limits of callers are the functions'.

locals {
  # Level 1 of the Core Rule Set 4.22: from level 2 on, signatures match each 0x address, hash and call data. The
  # signatures that are left out match the names of functions, such as quote(uint256) in a payload. The Go test
  # TestArmorDeployedRefusesNoRequestOfOurs runs the rest over the requests of the API.
  waf = { 1000 = "evaluatePreconfiguredWaf('sqli-v422-stable', {'sensitivity': 1, 'opt_out_rule_ids': [${join(", ", [for id in local.waf_left_out : "'owasp-crs-v042200-id${id}-sqli'"])}]})" }

  waf_left_out = ["942100", "942140", "942151", "942160", "942190"]

  limits = merge(
    length(var.caller_ranges) == 0 ? {} : {
      1900 = { description = "Floods from one address of a known service", ranges = var.caller_ranges, count = var.caller_requests_per_minute }
    },
    { 2000 = { description = "Floods from one address", ranges = ["*"], count = var.requests_per_minute } },
  )
}

resource "google_compute_security_policy" "public" {
  name = "${var.name}-public"

  advanced_options_config {
    json_parsing = "STANDARD"
    log_level    = "NORMAL"
  }

  dynamic "rule" {
    for_each = local.waf

    content {
      action      = "deny(403)"
      priority    = rule.key
      preview     = var.preview
      description = "Injection, by the signatures of level 1"

      match {
        expr {
          expression = rule.value
        }
      }
    }
  }

  # The first rule that matches decides, so that an address has one limit. None is by the header Authorization: Cloud
  # Armor compares its first 128 bytes, which the tokens of all callers of one issuer share, and which anybody can send.
  dynamic "rule" {
    for_each = local.limits

    content {
      action      = "throttle"
      priority    = rule.key
      preview     = var.preview
      description = rule.value.description

      match {
        versioned_expr = "SRC_IPS_V1"

        config {
          src_ip_ranges = rule.value.ranges
        }
      }

      rate_limit_options {
        conform_action = "allow"
        exceed_action  = "deny(429)"
        enforce_on_key = "IP"

        rate_limit_threshold {
          count        = rule.value.count
          interval_sec = 60
        }
      }
    }
  }

  rule {
    action      = "allow"
    priority    = 2147483647
    description = "Every other request: the functions require a token"

    match {
      versioned_expr = "SRC_IPS_V1"

      config {
        src_ip_ranges = ["*"]
      }
    }
  }
}

# Only the operators' addresses reach the admin functions; without admin_ranges no address does. This rule is never a
# preview. Operators have the same limits of requests as other addresses.
resource "google_compute_security_policy" "admin" {
  name = "${var.name}-admin"

  advanced_options_config {
    json_parsing = "STANDARD"
    log_level    = "NORMAL"
  }

  dynamic "rule" {
    for_each = local.waf

    content {
      action      = "deny(403)"
      priority    = rule.key
      preview     = var.preview
      description = "Injection, by the signatures of level 1"

      match {
        expr {
          expression = rule.value
        }
      }
    }
  }

  # A preview of this one decides nothing, and the next lets operators in.
  dynamic "rule" {
    for_each = length(var.admin_ranges) > 0 ? [true] : []

    content {
      action      = "throttle"
      priority    = 2000
      preview     = var.preview
      description = "Floods from one operator's address"

      match {
        versioned_expr = "SRC_IPS_V1"

        config {
          src_ip_ranges = var.admin_ranges
        }
      }

      rate_limit_options {
        conform_action = "allow"
        exceed_action  = "deny(429)"
        enforce_on_key = "IP"

        rate_limit_threshold {
          count        = var.requests_per_minute
          interval_sec = 60
        }
      }
    }
  }

  dynamic "rule" {
    for_each = length(var.admin_ranges) > 0 ? [true] : []

    content {
      action      = "allow"
      priority    = 3000
      preview     = false
      description = "Operators"

      match {
        versioned_expr = "SRC_IPS_V1"

        config {
          src_ip_ranges = var.admin_ranges
        }
      }
    }
  }

  rule {
    action      = "deny(404)"
    priority    = 2147483647
    preview     = false
    description = "Every other address"

    match {
      versioned_expr = "SRC_IPS_V1"

      config {
        src_ip_ranges = ["*"]
      }
    }
  }
}
