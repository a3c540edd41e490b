// Package web holds what every HTTP edge needs and nothing of the domain:
// errors as problem+json (RFC 9457), strict decoding of JSON bodies, a mux whose
// own refusals are problems too, verification of OIDC tokens, and a server that
// drains on SIGTERM.
//
// A handler returns early with [Fail], whatever the error is: a [Problem] is
// written as it stands, anything else becomes UNAVAILABLE and its text goes to
// the log only.
package web
