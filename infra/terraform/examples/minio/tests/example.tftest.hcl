mock_provider "aws" {}

variables {
  access_key = "root"
  secret_key = "of no use to a test"
}

run "buckets_and_expiry" {
  command = plan

  assert {
    condition = output.environment == {
      CARLOS_S3_ENDPOINT      = "http://127.0.0.1:9000"
      CARLOS_BUCKET           = "s3://carlos-deployment"
      CARLOS_HIBERNATE_BUCKET = { ie = "s3://carlos-data-ie", uk = "s3://carlos-data-uk" }
    }
    error_message = "services are told the server and its buckets"
  }
  assert {
    condition     = output.expiring["db-reads/"] == 1
    error_message = "reads expire after a day"
  }
}
