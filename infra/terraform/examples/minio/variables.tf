variable "name" {
  description = "Begins the name of every bucket."
  type        = string
  default     = "carlos"
}

variable "endpoint" {
  description = "The server's URL."
  type        = string
  default     = "http://127.0.0.1:9000"
}

variable "access_key" {
  description = "The key of a user who may make buckets."
  type        = string
}

variable "secret_key" {
  description = "That user's secret."
  type        = string
  sensitive   = true
}

variable "regions" {
  description = "The regions that keep data."
  type        = set(string)
  default     = ["ie", "uk"]
}
