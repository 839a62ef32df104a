# Who may do what. The documents in policies/ are what `carlos admin policies` prints, with names
# left open; a test holds them equal, so that a grant is changed in one place.

locals {
  # The role of each principal, what it is of (a region, a mesh, a deployment), and its data.
  principals = merge(
    { for name, region in var.consoles : name => { role = "console", of = region, data = region } },
    { for name, region in var.boxes : name => { role = "agent", of = region, data = region } },
    { for name, region in var.replicators : name => { role = "replicator", of = region, data = region } },
    { for name in var.operators : name => { role = "operator", of = "", data = "" } },
    { for name, mesh in var.mesh_nodes : name => { role = "mesh-node", of = mesh, data = "" } },
    { for name, deployment in var.routers : name => { role = "router", of = deployment, data = "" } },
  )

  asked_for = sum([
    length(var.consoles), length(var.boxes), length(var.replicators),
    length(var.operators), length(var.mesh_nodes), length(var.routers),
  ])

  policies = {
    for name, principal in local.principals : name => jsonencode(jsondecode(templatefile(
      "${path.module}/policies/${principal.role}.json", {
        name       = name
        of         = principal.of
        deployment = var.deployment_bucket.name
        data       = try(var.data_buckets[principal.data].name, "")
    })))
  }

  deployment_url = "s3://${var.deployment_bucket.name}?region=${var.deployment_bucket.region}"

  data_urls = {
    for region, bucket in var.data_buckets : region => "s3://${bucket.name}?region=${bucket.region}"
  }
}

resource "aws_iam_role" "this" {
  for_each = local.principals
  name     = "${var.name_prefix}-${each.key}"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = var.trusted_services }
    }]
  })

  lifecycle {
    precondition {
      condition     = length(local.principals) == local.asked_for
      error_message = "Two principals have one name; the second would take the first one's rights."
    }
  }
}

resource "aws_iam_role_policy" "this" {
  for_each = local.policies
  name     = "${var.name_prefix}-${each.key}"
  role     = aws_iam_role.this[each.key].id
  policy   = each.value
}

# How a role reaches a machine on EC2.
resource "aws_iam_instance_profile" "this" {
  for_each = contains(var.trusted_services, "ec2.amazonaws.com") ? local.principals : {}
  name     = "${var.name_prefix}-${each.key}"
  role     = aws_iam_role.this[each.key].name
}
