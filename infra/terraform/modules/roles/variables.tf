variable "name_prefix" {
  description = "Begins the name of every role."
  type        = string
}

variable "deployment_bucket" {
  description = "The deployment bucket, with its AWS region."
  type        = object({ name = string, region = string })
}

variable "data_buckets" {
  description = "The data bucket of each region, with its AWS region."
  type        = map(object({ name = string, region = string }))
}

variable "consoles" {
  description = "The region that each console stands in, by the console's name."
  type        = map(string)
  default     = {}
  validation {
    condition     = alltrue([for region in values(var.consoles) : contains(keys(var.data_buckets), region)])
    error_message = "a console stands in a region that has a data bucket."
  }
}

variable "boxes" {
  description = "The region whose replicas each box reads, by the box's name."
  type        = map(string)
  default     = {}
  validation {
    condition     = alltrue([for region in values(var.boxes) : contains(keys(var.data_buckets), region)])
    error_message = "a box stands in a region that has a data bucket."
  }
}

variable "replicators" {
  description = "The region whose data bucket each Litestream writes, by its role's name."
  type        = map(string)
  default     = {}
  validation {
    condition     = alltrue([for region in values(var.replicators) : contains(keys(var.data_buckets), region)])
    error_message = "a replicator writes the bucket of a region that has one."
  }
}

variable "operators" {
  description = "Names of the roles that run carlos admin."
  type        = set(string)
  default     = []
}

variable "mesh_nodes" {
  description = "The mesh of each node, by the node's name."
  type        = map(string)
  default     = {}
}

variable "routers" {
  description = "The deployment of each router or private memory host, by its name."
  type        = map(string)
  default     = {}
}

variable "trusted_services" {
  description = "AWS services that may take the roles: where the programs run."
  type        = list(string)
  default     = ["ec2.amazonaws.com"]
}

variable "release_pubkeys" {
  description = "Root public keys that boxes accept requests from, as carlos admin keys prints them."
  type        = list(string)
  default     = []
}
