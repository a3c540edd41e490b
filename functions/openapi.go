package functions

import (
	_ "embed"

	"github.com/fencepost/fencepost/shared/web"
)

// OpenAPI is the OpenAPI 3.1 description of all calls for callers, users and operators.
//
//go:embed openapi.yaml
var OpenAPI string

// document serves [OpenAPI], without a token.
var document = web.NewStatic("application/yaml", []byte(OpenAPI))
