output "environment" {
  description = "What the environment of every service has in common, and each region's bucket."
  value = {
    CARLOS_S3_ENDPOINT      = var.endpoint
    CARLOS_BUCKET           = module.deployment.url
    CARLOS_HIBERNATE_BUCKET = { for region, bucket in module.data : region => bucket.url }
  }
}

output "expiring" {
  description = "Prefixes of the deployment bucket that expire, with their age in days."
  value       = module.deployment.expiring
}
