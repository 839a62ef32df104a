# The buckets of a deployment on MinIO or another server that speaks S3. Users and their policies
# are the server's own affair: see docs/deploy.md.

provider "aws" {
  region                      = "us-east-1"
  access_key                  = var.access_key
  secret_key                  = var.secret_key
  s3_use_path_style           = true
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_region_validation      = true
  skip_requesting_account_id  = true
  endpoints {
    s3 = var.endpoint
  }
}

module "deployment" {
  source = "../../modules/deployment-bucket"
  name   = "${var.name}-deployment"
  amazon = false
}

module "data" {
  for_each = var.regions
  source   = "../../modules/data-bucket"
  name     = "${var.name}-data-${each.key}"
  amazon   = false
}
