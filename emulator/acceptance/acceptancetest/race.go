//go:build race

package acceptancetest

// RaceFlags gives a program that is built the race detector, if the test has it.
var RaceFlags = []string{"-race"}
