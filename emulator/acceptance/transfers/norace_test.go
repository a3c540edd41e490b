//go:build !race

package transfers

var raceFlags []string
