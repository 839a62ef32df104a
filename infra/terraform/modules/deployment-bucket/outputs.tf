output "name" {
  description = "The bucket's name."
  value       = aws_s3_bucket.this.bucket
}

output "url" {
  description = "CARLOS_BUCKET of every service."
  value       = var.region == null ? "s3://${var.name}" : "s3://${var.name}?region=${var.region}"
}

output "expiring" {
  description = "Prefixes that expire, with their age in days."
  value       = local.expiring
}
