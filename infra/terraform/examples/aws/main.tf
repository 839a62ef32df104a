# A deployment on AWS: one deployment bucket, a data bucket and boxes in each region, one console.

provider "aws" {
  region = var.home.aws_region
}

module "deployment" {
  source = "../../modules/deployment-bucket"
  name   = "${var.name}-deployment"
  region = var.home.aws_region
}

module "data" {
  for_each = var.regions
  source   = "../../modules/data-bucket"
  name     = "${var.name}-data-${each.key}"
  region   = each.value.aws_region
}

module "roles" {
  source            = "../../modules/roles"
  name_prefix       = var.name
  deployment_bucket = { name = "${var.name}-deployment", region = var.home.aws_region }
  data_buckets = {
    for region, settings in var.regions :
    region => { name = "${var.name}-data-${region}", region = settings.aws_region }
  }
  consoles        = { console = var.home.region }
  boxes           = merge([for region, settings in var.regions : { for box in settings.boxes : box => region }]...)
  replicators     = { for region in keys(var.regions) : "litestream-${region}" => region }
  operators       = ["operator"]
  release_pubkeys = var.release_pubkeys
}
