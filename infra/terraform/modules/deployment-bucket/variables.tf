variable "name" {
  description = "The bucket's name."
  type        = string
}

variable "region" {
  description = "AWS region of the bucket. Null takes the provider's."
  type        = string
  default     = null
}

variable "versioned" {
  description = <<-EOT
    Whether old versions of objects are kept. Off, because nothing here is ever replaced but
    serials and statuses, whose old versions are of no use; because an expired object then goes at
    once instead of a day later; and because some servers ignore the conditional header on
    versioned buckets. The lifecycle rules cover both settings.
  EOT
  type        = bool
  default     = false
}

variable "activity_days" {
  description = "How many days rows of the audit log are kept."
  type        = number
  default     = 400
  validation {
    condition     = var.activity_days >= 1 && floor(var.activity_days) == var.activity_days
    error_message = "activity_days is a whole number of days, at least 1."
  }
}

variable "amazon" {
  description = <<-EOT
    Whether the server is AWS. Others lack public access blocks, ownership controls and the
    condition key that the bucket's policy uses, so these are left out there.
  EOT
  type        = bool
  default     = true
}

variable "force_destroy" {
  description = "Whether terraform destroy may delete the bucket while it holds objects."
  type        = bool
  default     = false
}
