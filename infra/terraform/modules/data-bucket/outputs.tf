output "name" {
  description = "The bucket's name."
  value       = aws_s3_bucket.this.bucket
}

output "url" {
  description = "CARLOS_HIBERNATE_BUCKET of the region's boxes."
  value       = var.region == null ? "s3://${var.name}" : "s3://${var.name}?region=${var.region}"
}
