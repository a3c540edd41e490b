//go:build crashpoints

package config

// constantsSettable lets tests of whole processes wait for shorter times.
const constantsSettable = true
