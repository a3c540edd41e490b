// Package web holds the parts of an HTTP edge that are independent of the domain. They are errors
// as problem+json (RFC 9457), strict decoding of JSON bodies, a mux whose own refusals are problems
// too, verified OIDC tokens, and a server that drains on SIGTERM.
//
// A handler returns early with [Fail] for any error. A [Problem] is written as it is. Any other error
// becomes UNAVAILABLE, and its text is only logged.
package web
