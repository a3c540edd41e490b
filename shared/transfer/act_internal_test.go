package transfer

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// A status keeps its key for a day, and has a time within the core's horizon however long it is open.
func TestStatusCall(t *testing.T) {
	t.Parallel()
	ordered := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name string
		age  time.Duration
		key  string
		ok   bool
	}{
		{"at once", 0, "status-7-1767323045000", true},
		{"the same day", 23 * time.Hour, "status-7-1767323045000", true},
		{"while a call with the last key may be under way", 24*time.Hour + 59*time.Minute, "status-7-1767409445000", false},
		{"the next day", 26 * time.Hour, "status-7-1767409445000", true},
		{"after 40 days", 40*24*time.Hour + 2*time.Hour, "status-7-1770779045000", true},
	} {
		call, ok := Act{ID: 7, At: ordered, Age: c.age}.statusCall()
		if ok != c.ok || call.ReqID != c.key || ordered.Add(c.age).Sub(call.CreatedAt) >= keyLasts {
			t.Errorf("%s: got %s of %v, %t; want %s, %t, and a time of the last day", c.name, call.ReqID, call.CreatedAt, ok, c.key, c.ok)
		}
	}
	earlier, _ := Act{ID: 7, At: ordered.Add(-time.Hour)}.statusCall()
	check.Equal(t, "another act of the number", earlier.ReqID, "status-7-1767319445000")
}

// An act is repeated each minute, but a status whose account does not exist less and less often, up to a bound.
func TestNextWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		unknown string
		age     time.Duration
		want    time.Duration
	}{
		{noAccountYet, time.Minute, time.Minute}, {noAccountYet, 40 * time.Minute, 5 * time.Minute}, {noAccountYet, 300 * time.Hour, 10 * time.Minute},
		{betweenKeys, 300 * time.Hour, time.Minute}, {"no answer", 300 * time.Hour, time.Minute},
	} {
		check.Equal(t, c.unknown+" after "+c.age.String(), Act{Age: c.age}.nextWait(c.unknown), c.want)
	}
}
