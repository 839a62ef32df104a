terraform {
  # 1.9 lets a variable's validation name other variables.
  required_version = ">= 1.9"
  required_providers {
    aws = {
      source = "hashicorp/aws"
      # 6.0 takes a region on each resource, so that buckets of several regions need one provider.
      version = ">= 6.0"
    }
  }
}
