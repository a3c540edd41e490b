//go:build race

package moves

var raceFlags = []string{"-race"}
