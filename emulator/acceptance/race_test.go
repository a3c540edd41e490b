//go:build race

package acceptance

var raceFlags = []string{"-race"}
