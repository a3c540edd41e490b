//go:build race

package payouts

var raceFlags = []string{"-race"}
