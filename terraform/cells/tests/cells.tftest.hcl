# Two cells, and what each validation of the list refuses.

mock_provider "google" {
  override_during = plan
}

variables {
  project = "front"
  domain  = "api.example.com"
  cells = {
    a = {
      project = "cell-a"
      accounts = {
        "eip155:1:0x00000000000000000000000000000000000000aa"   = "treasury"
        "eip155:137:0x00000000000000000000000000000000000000aa" = "treasury"
      }
      transfers = true
    }
    b = {
      project      = "cell-b"
      region       = "europe-west4"
      name         = "fence-b"
      accounts     = { "eip155:1:0x00000000000000000000000000000000000000bb" = "" }
      key_location = "eu"
    }
  }
}

run "routes" {
  command = plan

  assert {
    condition     = alltrue([for r in output.routes : r.match == "/cells/${split("/", r.match)[2]}${r.path}" && startswith(r.path, "/")])
    error_message = "A path is not the one that a function gets behind /cells/NAME."
  }

  assert {
    condition     = alltrue([for r in output.routes : startswith(r.backend, split("/", r.match)[2] == "a" ? "projects/cell-a/global/backendServices/fencepost-" : "projects/cell-b/global/backendServices/fence-b-")])
    error_message = "A path leads to another cell than the one that it names."
  }

  assert {
    condition     = length([for r in output.routes : r if startswith(r.match, "/cells/a/")]) > length([for r in output.routes : r if startswith(r.match, "/cells/b/")])
    error_message = "The cell with transfers must have their paths, and the other one none of them."
  }

  # The path of a cancel goes before the prefix that contains it.
  assert {
    condition     = index([for r in output.routes : r.match], "/cells/b/api/v1/tx/{txId}/cancel") < index([for r in output.routes : r.match], "/cells/b/api/v1/tx/")
    error_message = "A prefix goes before a more exact path."
  }

  assert {
    condition = anytrue([
      for r in google_compute_url_map.this.path_matcher[0].route_rules :
      r.match_rules[0].path_template_match == "/cells/b/api/v1/tx/{txId=*}/cancel" && r.route_action[0].url_rewrite[0].path_template_rewrite == "/api/v1/tx/{txId}/cancel"
    ])
    error_message = "A template is not rewritten to the path that a function gets."
  }

  assert {
    condition = alltrue([
      for r in google_compute_url_map.this.path_matcher[0].route_rules :
      length([for m in [r.match_rules[0].full_path_match, r.match_rules[0].prefix_match, r.match_rules[0].path_template_match] : m if m != null && m != ""]) == 1
    ])
    error_message = "A rule has no path, or several."
  }
}

# The file is read by a test of the Go client.
run "the_clients_list" {
  command = plan

  assert {
    condition     = output.client_list == jsonencode(jsondecode(file("tests/client_list.json")))
    error_message = "tests/client_list.json is not the list that is rendered for clients."
  }
}

run "a_key_is_granted_to_its_cell_alone" {
  command = plan

  assert {
    condition = output.signers == {
      "projects/cell-a/locations/europe-west1/keyRings/fencepost-signers/cryptoKeys/treasury" = "serviceAccount:fencepost-advance@cell-a.iam.gserviceaccount.com"
    }
    error_message = "A key's signer is not the function advance of its cell."
  }

  assert {
    condition     = alltrue([for key, b in google_kms_crypto_key_iam_binding.signer : b.role == "roles/cloudkms.signer" && length(b.members) == 1 && contains(b.members, output.signers[key])])
    error_message = "Another member than the function advance of its cell may sign with a key."
  }
}

# As after the loss of a region, whose keys another deployment took over.
run "a_key_in_another_ring" {
  command = plan

  variables {
    cells = {
      a = { project = "cell-a", name = "new", accounts = { "eip155:1:0x00000000000000000000000000000000000000aa" = "treasury" }, key_location = "europe", key_ring = "lost-signers" }
    }
  }

  assert {
    condition = output.signers == {
      "projects/cell-a/locations/europe/keyRings/lost-signers/cryptoKeys/treasury" = "serviceAccount:new-advance@cell-a.iam.gserviceaccount.com"
    }
    error_message = "The right to sign is given on a key that the cell does not use."
  }
}

run "an_account_in_two_cells" {
  command = plan

  variables {
    cells = {
      a = { project = "cell-a", accounts = { "eip155:1:0x00000000000000000000000000000000000000aa" = "treasury" } }
      b = { project = "cell-b", accounts = { "eip155:1:0x00000000000000000000000000000000000000aa" = "treasury" } }
    }
  }

  expect_failures = [var.cells]
}

# One address is one key, whatever the chain.
run "an_address_in_two_cells_for_two_chains" {
  command = plan

  variables {
    cells = {
      a = { project = "cell-a", accounts = { "eip155:1:0x00000000000000000000000000000000000000aa" = "treasury" } }
      b = { project = "cell-b", accounts = { "eip155:137:0x00000000000000000000000000000000000000aa" = "" } }
    }
  }

  expect_failures = [var.cells]
}

run "one_deployment_as_two_cells" {
  command = plan

  variables {
    cells = {
      a = { project = "cell-a", accounts = { "eip155:1:0x00000000000000000000000000000000000000aa" = "treasury" } }
      b = { project = "cell-a", accounts = { "eip155:1:0x00000000000000000000000000000000000000bb" = "other" } }
    }
  }

  expect_failures = [var.cells]
}

run "an_account_that_is_none" {
  command = plan

  variables {
    cells = { a = { project = "cell-a", accounts = { "eip155:1:0x00000000000000000000000000000000000000AA" = "treasury" } } }
  }

  expect_failures = [var.cells]
}

run "no_cell" {
  command = plan

  variables {
    cells = {}
  }

  expect_failures = [var.cells]
}

run "as_many_cells_as_a_balancer_takes" {
  command = plan

  variables {
    cells = { for i in range(100) : "c${i}" => { project = "cell-${i}", accounts = {}, transfers = i == 0 } }
  }

  assert {
    condition     = length(output.routes) == 99 * length([for r in output.routes : r if startswith(r.match, "/cells/c1/")]) + length([for r in output.routes : r if startswith(r.match, "/cells/c0/")])
    error_message = "A cell of a hundred has another number of paths than the rest."
  }
}

run "more_cells_than_a_balancer_takes" {
  command = plan

  variables {
    cells = { for i in range(101) : "c${i}" => { project = "cell-${i}", accounts = {} } }
  }

  expect_failures = [google_compute_url_map.this]
}

run "front" {
  state_key = "front"

  module {
    source = "../modules/front"
  }

  variables {
    name    = "fencepost-cells"
    url_map = "projects/front/global/urlMaps/fencepost-cells"
    address = "projects/front/global/addresses/fencepost-cells"
  }
}

# The state of the run before has these resources where they were before they were a module.
run "front_of_existing_cells_is_moved" {
  command   = plan
  state_key = "front"

  assert {
    condition     = module.front.ids == run.front.ids
    error_message = "Existing cells get a new certificate, proxy or forwarding rule."
  }
}
