mock_provider "aws" {}

variables {
  name_prefix       = "acme"
  deployment_bucket = { name = "acme-deployment", region = "eu-west-1" }
  data_buckets = {
    ie = { name = "acme-data-ie", region = "eu-west-1" }
    uk = { name = "acme-data-uk", region = "eu-west-2" }
  }
  consoles        = { console = "ie" }
  boxes           = { box-ie = "ie", box-uk = "uk" }
  replicators     = { litestream-uk = "uk" }
  operators       = ["ops"]
  mesh_nodes      = { node-1 = "chat" }
  routers         = { router-1 = "main" }
  release_pubkeys = ["rk_one", "rk_two"]
}

run "every_principal_has_a_role" {
  command = plan

  assert {
    condition = toset(keys(output.policies)) == toset([
    "console", "box-ie", "box-uk", "litestream-uk", "ops", "node-1", "router-1"])
    error_message = "one policy for each principal"
  }
  assert {
    condition     = alltrue([for policy in values(output.policies) : !strcontains(policy, "$")])
    error_message = "no name is left open"
  }
  assert {
    condition     = output.role_names["box-uk"] == "acme-box-uk"
    error_message = "roles are named after their principals"
  }
}

run "nobody_but_operators_deletes" {
  command = plan

  assert {
    condition = alltrue([for name, policy in output.policies :
      !strcontains(policy, "s3:*") && !strcontains(policy, "s3:Delete")
    if !contains(["ops", "litestream-uk"], name)])
    error_message = "the lifecycle rule is the only deletion"
  }
  assert {
    condition = alltrue(flatten([for statement in jsondecode(output.policies["litestream-uk"]).Statement :
    [for resource in statement.Resource : startswith(resource, "arn:aws:s3:::acme-data-uk")]]))
    error_message = "a replicator reaches its own data bucket only"
  }
}

run "regions_are_apart" {
  command = plan

  # Whatever is not the deployment bucket is the own region's data bucket, by its whole name.
  assert {
    condition = alltrue(flatten([
      for name, region in { console = "ie", box-ie = "ie", box-uk = "uk" } : [
        for statement in jsondecode(output.policies[name]).Statement : [
          for resource in statement.Resource :
          contains(["acme-deployment", "acme-data-${region}"], split("/", trimprefix(resource, "arn:aws:s3:::"))[0])
        ]
      ]
    ]))
    error_message = "a console or box reads no other region's data"
  }
  assert {
    condition     = strcontains(output.policies["box-uk"], "arn:aws:s3:::acme-data-uk/*")
    error_message = "a box reads its own region's data"
  }
  assert {
    condition = alltrue([for name in ["box-uk", "node-1", "router-1"] :
    !strcontains(output.policies[name], "accounts/")])
    error_message = "only the console reads people's token hashes"
  }
  assert {
    condition = alltrue([for name in ["ops", "node-1", "router-1"] :
    !strcontains(output.policies[name], "acme-data-")])
    error_message = "who serves no data reads none"
  }
}

run "environment" {
  command = plan

  assert {
    condition = output.environment["box-uk"] == {
      CARLOS_BUCKET           = "s3://acme-deployment?region=eu-west-1"
      CARLOS_BOX              = "box-uk"
      CARLOS_REGION           = "uk"
      CARLOS_HIBERNATE_BUCKET = "s3://acme-data-uk?region=eu-west-2"
      CARLOS_RELEASE_PUBKEY   = "rk_one,rk_two"
    }
    error_message = "an agent's environment comes from the outputs"
  }
  assert {
    condition = output.environment["console"] == {
      CARLOS_BUCKET     = "s3://acme-deployment?region=eu-west-1"
      CARLOS_REGION     = "ie"
      CARLOS_DB_FORWARD = "1"
    }
    error_message = "a console's environment comes from the outputs"
  }
}

run "one_name_is_one_principal" {
  command = plan
  variables {
    operators = ["box-uk"]
  }
  expect_failures = [aws_iam_role.this]
}

run "a_region_needs_its_bucket" {
  command = plan
  variables {
    boxes = { box-us = "us" }
  }
  expect_failures = [var.boxes]
}
