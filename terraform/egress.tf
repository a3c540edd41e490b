# The hosts outside Google Cloud that each group of functions may reach. Those that sign, and those that hold the credentials of a
# signing service, are a group of their own.

locals {
  subnet_of = { for name, f in local.functions : name => f.signs || f.registers && contains(var.signers, "remote") ? "signing" : "functions" }

  groups = { for group in ["functions", "signing"] : group => [for name, f in local.functions : f if local.subnet_of[name] == group] }

  # The URLs that the variables name, for the functions that call them.
  egress_urls = { for group, functions in local.groups : group => concat(
    [var.oidc.jwks_url],
    var.console == null ? [] : ["https://www.gstatic.com"], # the keys of Identity-Aware Proxy
    anytrue([for f in functions : f.ledgers]) ? [var.transfers.trading_url, var.transfers.users_jwks_url] : [],
    anytrue([for f in functions : f.signs]) ? values(var.handlers) : [],
    anytrue([for f in functions : f.publishes]) ? values(try(var.events.endpoints, {})) : [],
  ) }

  egress_hosts = { for group, urls in local.egress_urls : group => setunion(
    [for url in urls : regex("^https://([^/:?#]+)", url)[0]], var.egress.hosts, group == "signing" ? var.egress.signer_hosts : [],
  ) }

  # A host that is an address has no name to resolve. Google's own APIs have addresses of their own.
  egress = { for group, hosts in local.egress_hosts : group => {
    hosts = [for h in hosts : h if !can(cidrhost("${h}/32", 0)) && !endswith(h, ".googleapis.com")]
    ranges = setunion(
      [for h in hosts : "${h}/32" if can(cidrhost("${h}/32", 0))], var.egress.ranges, group == "signing" ? var.egress.signer_ranges : [],
    )
  } }

  egress_ports = setunion(var.egress.ports, [for url in flatten(values(local.egress_urls)) : try(regex("^https://[^/:?#]+:([0-9]+)", url)[0], "443")])
}
