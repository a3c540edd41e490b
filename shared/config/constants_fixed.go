//go:build !crashpoints

package config

// constantsSettable is a variable so that the tests of this package can change it.
var constantsSettable = false
