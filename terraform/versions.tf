terraform {
  required_version = ">= 1.11"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 8.0"
    }
  }

  # Where the state lies is given to terraform init; see docs/runbooks/first-deploy.md.
  backend "gcs" {}
}

provider "google" {
  project = var.project
  region  = var.region

  default_labels = {
    app         = "fencepost"
    environment = var.environment
  }
}
