mock_provider "aws" {}

variables {
  name   = "acme-data-uk"
  region = "eu-west-2"
}

run "closed_and_encrypted" {
  command = plan

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
    condition = jsondecode(aws_s3_bucket_policy.this[0].policy).Statement[0] == {
      Sid       = "TlsOnly"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = ["arn:aws:s3:::acme-data-uk", "arn:aws:s3:::acme-data-uk/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }
    error_message = "nobody gets in without TLS"
  }
  assert {
    condition     = output.url == "s3://acme-data-uk?region=eu-west-2"
    error_message = "the URL names the bucket's own region"
  }
}

run "no_replica_expires" {
  command = plan

  assert {
    condition = alltrue([for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule :
    length(rule.expiration) == 0 && length(rule.noncurrent_version_expiration) == 0])
    error_message = "only Litestream removes a replica's files"
  }
}
