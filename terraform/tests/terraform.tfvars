# What a bare terraform test takes; -var-file=environments/NAME.tfvars replaces it.
environment = "dev"
