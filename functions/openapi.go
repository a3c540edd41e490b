package functions

import _ "embed"

// OpenAPI describes, as OpenAPI 3.1, all that callers, users and operators may call.
//
//go:embed openapi.yaml
var OpenAPI string
