variable "name" {
  description = "Begins the name of every bucket and role. Bucket names are shared by all of AWS."
  type        = string
  default     = "carlos-example"
}

variable "home" {
  description = "Where the console and the deployment bucket are."
  type        = object({ region = string, aws_region = string })
  default     = { region = "ie", aws_region = "eu-west-1" }
}

variable "regions" {
  description = "The regions that keep data: where in AWS, and the names of the boxes."
  type        = map(object({ aws_region = string, boxes = set(string) }))
  default = {
    ie = { aws_region = "eu-west-1", boxes = ["box-ie-1"] }
    uk = { aws_region = "eu-west-2", boxes = ["box-uk-1", "box-uk-2"] }
  }
}

variable "release_pubkeys" {
  description = "What `carlos admin keys root --out FILE` prints. The file stays with the console."
  type        = list(string)
  default     = []
}
