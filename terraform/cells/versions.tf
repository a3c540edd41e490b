terraform {
  required_version = ">= 1.11"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 8.0"
    }
  }

  # Its own state, beside those of the cells: give another prefix to terraform init.
  backend "gcs" {}
}

provider "google" {
  project = var.project
}
