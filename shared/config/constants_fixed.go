//go:build !crashpoints

package config

const constantsSettable = false
