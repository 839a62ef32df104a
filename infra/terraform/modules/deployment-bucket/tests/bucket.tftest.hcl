mock_provider "aws" {}

variables {
  name   = "acme-deployment"
  region = "eu-west-1"
}

run "t17_lifecycle" {
  command = plan

  assert {
    condition = toset([for rule in aws_s3_bucket_lifecycle_configuration.this.rule :
    rule.filter[0].prefix]) == toset(["activity/", "db-reads/", "mesh/", "presence/", "probe/"])
    error_message = "exactly the prefixes that expire have rules"
  }
  assert {
    condition = alltrue([for rule in aws_s3_bucket_lifecycle_configuration.this.rule :
    rule.status == "Enabled"])
    error_message = "every rule is enabled"
  }
  assert {
    condition = {
      for rule in aws_s3_bucket_lifecycle_configuration.this.rule :
      rule.filter[0].prefix => rule.expiration[0].days if startswith(rule.id, "expire-")
      } == {
      "activity/" = 400, "db-reads/" = 1, "mesh/" = 3, "presence/" = 1, "probe/" = 1
    }
    error_message = "current versions go at the ages of the table"
  }
  assert {
    condition = alltrue([for rule in aws_s3_bucket_lifecycle_configuration.this.rule :
      rule.noncurrent_version_expiration[0].noncurrent_days == 1
    if startswith(rule.id, "expire-")])
    error_message = "noncurrent versions go a day later"
  }
  assert {
    condition = alltrue([for rule in aws_s3_bucket_lifecycle_configuration.this.rule :
      rule.abort_incomplete_multipart_upload[0].days_after_initiation == 1
    if startswith(rule.id, "expire-")])
    error_message = "unfinished uploads are aborted after a day"
  }
  assert {
    condition = {
      for rule in aws_s3_bucket_lifecycle_configuration.this.rule :
      rule.filter[0].prefix => rule.expiration[0].expired_object_delete_marker
      if startswith(rule.id, "markers-")
      } == {
      "activity/" = true, "db-reads/" = true, "mesh/" = true, "presence/" = true, "probe/" = true
    }
    error_message = "delete markers without versions are removed under every expiring prefix"
  }
}

run "closed_and_encrypted" {
  command = plan

  assert {
    condition     = length(aws_s3_bucket_versioning.this) == 0
    error_message = "the bucket is unversioned unless asked otherwise"
  }
  assert {
    condition = alltrue([
      aws_s3_bucket_public_access_block.this[0].block_public_acls,
      aws_s3_bucket_public_access_block.this[0].block_public_policy,
      aws_s3_bucket_public_access_block.this[0].ignore_public_acls,
      aws_s3_bucket_public_access_block.this[0].restrict_public_buckets,
    ])
    error_message = "no object can become public"
  }
  assert {
    condition = alltrue(flatten([
      for rule in aws_s3_bucket_server_side_encryption_configuration.this[0].rule : [
        for usual in rule.apply_server_side_encryption_by_default :
        usual.sse_algorithm == "AES256"
      ]
    ]))
    error_message = "objects are encrypted at rest"
  }
}

run "policy" {
  command = plan

  assert {
    condition = [for statement in jsondecode(aws_s3_bucket_policy.this[0].policy).Statement :
    [statement.Sid, statement.Effect]] == [["TlsOnly", "Deny"], ["CreateOnly", "Deny"]]
    error_message = "the bucket's policy only denies"
  }
  assert {
    condition = jsondecode(aws_s3_bucket_policy.this[0].policy).Statement[0] == {
      Sid       = "TlsOnly"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = ["arn:aws:s3:::acme-deployment", "arn:aws:s3:::acme-deployment/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }
    error_message = "nobody gets in without TLS"
  }
  assert {
    condition = jsondecode(aws_s3_bucket_policy.this[0].policy).Statement[1] == {
      Sid       = "CreateOnly"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:PutObject"
      NotResource = [
        "arn:aws:s3:::acme-deployment/control/serial/*",
        "arn:aws:s3:::acme-deployment/control/status/*",
        "arn:aws:s3:::acme-deployment/router/*/serial",
      ]
      Condition = { Null = { "s3:if-none-match" = "true" } }
    }
    error_message = "only serials and statuses are written without the conditional header"
  }
}

run "versioned_when_asked" {
  command = plan
  variables {
    versioned = true
  }
  assert {
    condition     = aws_s3_bucket_versioning.this[0].versioning_configuration[0].status == "Enabled"
    error_message = "versioned = true turns versions on"
  }
}

run "other_servers_get_what_they_know" {
  command = plan
  variables {
    amazon = false
    region = null
  }
  assert {
    condition = alltrue([
      length(aws_s3_bucket_policy.this) == 0,
      length(aws_s3_bucket_public_access_block.this) == 0,
      length(aws_s3_bucket_ownership_controls.this) == 0,
      length(aws_s3_bucket_server_side_encryption_configuration.this) == 0,
    ])
    error_message = "a server that is not AWS is asked for buckets and lifecycle only"
  }
  assert {
    condition = alltrue([for rule in aws_s3_bucket_lifecycle_configuration.this.rule :
    length(rule.abort_incomplete_multipart_upload) == 0])
    error_message = "MinIO takes no rule about unfinished uploads"
  }
  assert {
    condition     = output.url == "s3://acme-deployment"
    error_message = "without a region the URL names none"
  }
}

run "whole_days_only" {
  command = plan
  variables {
    activity_days = 0
  }
  expect_failures = [var.activity_days]
}
