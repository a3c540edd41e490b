package functions

import _ "embed"

// OpenAPI is the OpenAPI 3.1 description of all calls for callers, users and operators.
//
//go:embed openapi.yaml
var OpenAPI string
