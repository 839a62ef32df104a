variable "name" {
  description = "The bucket's name."
  type        = string
}

variable "region" {
  description = "AWS region of the bucket. Null takes the provider's."
  type        = string
  default     = null
}

variable "amazon" {
  description = "Whether the server is AWS. Others lack public access blocks and ownership controls."
  type        = bool
  default     = true
}

variable "force_destroy" {
  description = "Whether terraform destroy may delete the bucket while it holds replicas."
  type        = bool
  default     = false
}
