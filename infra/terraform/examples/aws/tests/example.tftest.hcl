mock_provider "aws" {}

run "three_boxes_in_two_regions" {
  command = plan

  assert {
    condition = toset(keys(output.policies)) == toset([
      "console", "operator", "box-ie-1", "box-uk-1", "box-uk-2", "litestream-ie", "litestream-uk",
    ])
    error_message = "a principal for each program"
  }
  assert {
    condition     = output.environment["box-uk-2"].CARLOS_HIBERNATE_BUCKET == "s3://carlos-example-data-uk?region=eu-west-2"
    error_message = "a box is told its region's bucket"
  }
  assert {
    condition     = output.environment["box-uk-2"].CARLOS_BUCKET == "s3://carlos-example-deployment?region=eu-west-1"
    error_message = "a box is told where the deployment bucket is"
  }
  assert {
    condition     = output.environment["console"].CARLOS_REGION == "ie"
    error_message = "the console stands at home"
  }
}
