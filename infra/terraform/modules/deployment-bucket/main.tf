locals {
  # Everything that expires, with its age in days. A rule matches a plain prefix and nothing finer,
  # so each of these is a top-level prefix of its own. Records, indexes and serials are in no rule.
  # The directory store's own expiry reads the same table; a test holds the two equal.
  expiring = {
    "db-reads/" = 1
    "presence/" = 1
    "probe/"    = 1
    "mesh/"     = 3
    "activity/" = var.activity_days
  }

  # On a versioned bucket an expired object becomes noncurrent first.
  noncurrent_days = 1

  # The protocol uploads no parts; what another tool left unfinished goes with the rest.
  unfinished_days = 1

  # From the name and not from the bucket's attribute, so that a plan shows the whole policy.
  arn = "arn:aws:s3:::${var.name}"

  # The only objects that are ever replaced.
  replaced = ["control/serial/*", "control/status/*", "router/*/serial"]

  statements = [
    {
      Sid       = "TlsOnly"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = [local.arn, "${local.arn}/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    },
    {
      # Any other object is created once. A tool that forgets the header cannot replace one, and
      # neither can a multipart upload, whose first request has no such header.
      Sid         = "CreateOnly"
      Effect      = "Deny"
      Principal   = "*"
      Action      = "s3:PutObject"
      NotResource = [for key in local.replaced : "${local.arn}/${key}"]
      Condition   = { Null = { "s3:if-none-match" = "true" } }
    },
  ]
}

resource "aws_s3_bucket" "this" {
  bucket        = var.name
  region        = var.region
  force_destroy = var.force_destroy
}

resource "aws_s3_bucket_versioning" "this" {
  count  = var.versioned ? 1 : 0
  bucket = aws_s3_bucket.this.id
  region = var.region
  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "this" {
  bucket     = aws_s3_bucket.this.id
  region     = var.region
  depends_on = [aws_s3_bucket_versioning.this]

  dynamic "rule" {
    for_each = local.expiring
    content {
      id     = "expire-${trimsuffix(rule.key, "/")}"
      status = "Enabled"
      filter {
        prefix = rule.key
      }
      expiration {
        days = rule.value
      }
      noncurrent_version_expiration {
        noncurrent_days = local.noncurrent_days
      }
      # MinIO drops this from a rule, and a provider that reads its rule back would find it
      # missing; there the server's own setting does it.
      dynamic "abort_incomplete_multipart_upload" {
        for_each = var.amazon ? [local.unfinished_days] : []
        content {
          days_after_initiation = abort_incomplete_multipart_upload.value
        }
      }
    }
  }

  # S3 refuses an age and delete markers in one rule.
  dynamic "rule" {
    for_each = local.expiring
    content {
      id     = "markers-${trimsuffix(rule.key, "/")}"
      status = "Enabled"
      filter {
        prefix = rule.key
      }
      expiration {
        expired_object_delete_marker = true
      }
    }
  }
}

resource "aws_s3_bucket_public_access_block" "this" {
  count                   = var.amazon ? 1 : 0
  bucket                  = aws_s3_bucket.this.id
  region                  = var.region
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "this" {
  count  = var.amazon ? 1 : 0
  bucket = aws_s3_bucket.this.id
  region = var.region
  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  count  = var.amazon ? 1 : 0
  bucket = aws_s3_bucket.this.id
  region = var.region
  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_policy" "this" {
  count  = var.amazon ? 1 : 0
  bucket = aws_s3_bucket.this.id
  region = var.region
  policy = jsonencode({ Version = "2012-10-17", Statement = local.statements })
  # A policy that arrives before the block could be refused as public.
  depends_on = [aws_s3_bucket_public_access_block.this]
}
