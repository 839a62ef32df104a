# Replicas of one region, as Litestream writes them. Litestream's own retention removes old files,
# so the bucket has no rule that could take one away while a plan still names it.

locals {
  # A large snapshot uploads for minutes, not for a day.
  unfinished_days = 1

  arn = "arn:aws:s3:::${var.name}"

  statements = [{
    Sid       = "TlsOnly"
    Effect    = "Deny"
    Principal = "*"
    Action    = "s3:*"
    Resource  = [local.arn, "${local.arn}/*"]
    Condition = { Bool = { "aws:SecureTransport" = "false" } }
  }]
}

resource "aws_s3_bucket" "this" {
  bucket        = var.name
  region        = var.region
  force_destroy = var.force_destroy
}

# MinIO refuses a rule that does nothing else; there the server's own setting does this.
resource "aws_s3_bucket_lifecycle_configuration" "this" {
  count  = var.amazon ? 1 : 0
  bucket = aws_s3_bucket.this.id
  region = var.region
  rule {
    id     = "unfinished-uploads"
    status = "Enabled"
    filter {}
    abort_incomplete_multipart_upload {
      days_after_initiation = local.unfinished_days
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
  count      = var.amazon ? 1 : 0
  bucket     = aws_s3_bucket.this.id
  region     = var.region
  policy     = jsonencode({ Version = "2012-10-17", Statement = local.statements })
  depends_on = [aws_s3_bucket_public_access_block.this]
}
