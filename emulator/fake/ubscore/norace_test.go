//go:build !race

package ubscore_test

var raceFlags []string
