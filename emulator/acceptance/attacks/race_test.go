//go:build race

package attacks

var raceFlags = []string{"-race"}
