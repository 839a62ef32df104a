output "policies" {
  description = "The policy of each principal, by its name."
  value       = local.policies
}

output "role_names" {
  description = "The role of each principal, by its name."
  value       = { for name, role in aws_iam_role.this : name => role.name }
}

output "environment" {
  description = "The environment of each console and each agent's service, by its name."
  value = merge(
    {
      for name, region in var.consoles : name => {
        CARLOS_BUCKET     = local.deployment_url
        CARLOS_REGION     = region
        CARLOS_DB_FORWARD = "1"
      }
    },
    {
      for name, region in var.boxes : name => {
        CARLOS_BUCKET           = local.deployment_url
        CARLOS_BOX              = name
        CARLOS_REGION           = region
        CARLOS_HIBERNATE_BUCKET = local.data_urls[region]
        CARLOS_RELEASE_PUBKEY   = join(",", var.release_pubkeys)
      }
    },
  )
}
