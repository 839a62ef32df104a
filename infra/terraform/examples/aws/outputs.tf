output "environment" {
  description = "The environment of each service, by its name: terraform output -json environment."
  value       = module.roles.environment
}

output "roles" {
  description = "The role of each principal."
  value       = module.roles.role_names
}

output "policies" {
  description = "The policy of each principal."
  value       = module.roles.policies
}
