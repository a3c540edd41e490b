//go:build crashpoints

package config

// constantsSettable lets tests of whole processes wait for shorter times.
var constantsSettable = true
